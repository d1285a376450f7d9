"""What connectors share: sources and sinks, the outbox, clients of servers."""
