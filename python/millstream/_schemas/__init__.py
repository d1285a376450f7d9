"""Values and keys of messages that name their schema in a schema registry.

Such bytes begin with a zero byte and the id of their schema, 4 bytes; in Protobuf the path to the message in
its file follows. :mod:`millstream.kafka` exports the functions.

The wire format: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/
"""
