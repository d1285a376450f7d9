"""Values: text forms, lengths of time, JSON, records, and how objects are copied and saved."""
