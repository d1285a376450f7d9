"""Runs of flows: options, the command, supervisors, processes, replay and logs."""
