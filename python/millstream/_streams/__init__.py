"""Flows and streams: the fluent API, a module for each group of verbs."""
