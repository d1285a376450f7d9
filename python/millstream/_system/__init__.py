"""Systems of services in one file, and their supervisor."""
