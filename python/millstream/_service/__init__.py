"""Services: components, calls, the command, tests as data."""
