"""Journals and queues of this process."""
