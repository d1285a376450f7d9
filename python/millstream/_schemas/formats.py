"""What the formats do with a schema: they make a function that writes items by it, and one that reads them.

The bytes are those of the serializers that Confluent publishes.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Protocol

from .._errors.flow import FlowUsageError, show
from .._values.json import dump, load
from .client import Reference, RegistryClient, Schema
from .errors import SchemaRegistryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Read = Callable[[bytes], Any]
    Write = Callable[[Any], bytes]


class Format(Protocol):
    """A format of values that name their schema."""

    @property
    def kind(self) -> str:
        """Its name in a registry."""

    def reader(self, client: RegistryClient, schema: Schema) -> Read:
        """A function that makes an item of what follows the id."""

    def writer(self, client: RegistryClient, schema: Schema) -> Write:
        """A function that makes what follows the id of an item.

        Its exceptions are ValueError and TypeError for an item that does not match the schema.
        """

    def own(self, client: RegistryClient, register: bool) -> Schema | None:
        """The schema of the program; None: the newest one of the subject."""

    def record_name(self) -> str | None:
        """The name of the type of the items, for names of subjects."""


def own_schema(schema: object, kind: str, references: Sequence[tuple[str, str, int]]) -> Schema | None:
    """The schema that a program passes, as text or as what ``json.loads`` returns of it.

    >>> own_schema({"type": "string"}, "AVRO", ()).text
    '{"type": "string"}'
    """
    refers = [Reference(*each) for each in references]
    if schema is None:
        if refers:
            raise FlowUsageError("references are those of schema=, which is not given")
        return None
    if isinstance(schema, (dict, list)):
        schema = json.dumps(schema)
    if not isinstance(schema, str):
        raise FlowUsageError(f"schema is text or a dict, not {show(schema)}")
    text = schema.strip()
    if kind == "AVRO" and text[:1] not in ("{", "["):
        # A registry takes no bare name of a type.
        text = f'{{"type":{text}}}'
    try:
        json.loads(text)
    except ValueError as error:
        raise FlowUsageError(f"schema is no JSON: {error}: {show(schema)}") from None
    return Schema(text, kind, tuple(refers))


def referenced(client: RegistryClient, schema: Schema) -> Iterator[tuple[str, Any]]:
    """The schemas that a schema refers to, also by way of others, each with its name; each once."""
    seen = set()
    waiting = list(schema.references)
    while waiting:
        reference = waiting.pop()
        if reference in seen:
            continue
        seen.add(reference)
        found = client.version(reference)
        waiting.extend(found.references)
        yield reference.name, json.loads(found.text)


class Avro:
    """Avro, by fastavro."""

    kind = "AVRO"

    def __init__(self, schema: object = None, references: Sequence[tuple[str, str, int]] = ()) -> None:
        try:
            import fastavro
        except ImportError:
            raise ImportError("Avro needs the package fastavro: pip install 'millstream[avro]'") from None
        self.fastavro = fastavro
        self.given = own_schema(schema, self.kind, references)

    def own(self, client: RegistryClient, register: bool) -> Schema | None:
        return self.given

    def record_name(self) -> str | None:
        if self.given is None:
            return None
        schema = json.loads(self.given.text)
        if not isinstance(schema, dict):
            return None
        name = schema.get("name", schema.get("type"))
        space = schema.get("namespace")
        return f"{space}.{name}" if space and isinstance(name, str) and "." not in name else name

    def parsed(self, client: RegistryClient, schema: Schema) -> Any:
        """The schema with those that it refers to put into it."""
        from fastavro.repository.base import AbstractSchemaRepository

        known: dict[str, Any] = {}
        for name, other in referenced(client, schema):
            known[name] = other
            if isinstance(other, dict) and other.get("namespace") and "name" in other:
                known.setdefault(f"{other['namespace']}.{other['name']}", other)
        known[ROOT] = json.loads(schema.text)

        class Known(AbstractSchemaRepository):
            def load(self, name: str) -> Any:
                if name not in known:
                    raise SchemaRegistryError(
                        f'it refers to a type "{name}", which is in none of its references'
                    )
                # It is changed by what loads it.
                return json.loads(json.dumps(known[name]))

        try:
            return self.fastavro.schema.load_schema(ROOT, repo=Known())
        except PARSE_ERRORS + self.errors() as error:
            number = f" with the id {schema.id}" if schema.id else ""
            why = f"{type(error).__name__}: {error}"
            raise SchemaRegistryError(f"the schema{number} is no schema of Avro: {why}") from None

    def errors(self) -> tuple[type[Exception], ...]:
        from fastavro.schema import SchemaParseException, UnknownType

        return SchemaParseException, UnknownType

    def reader(self, client: RegistryClient, schema: Schema) -> Read:
        parsed = self.parsed(client, schema)
        read = self.fastavro.schemaless_reader
        if is_bytes(parsed):
            return bytes
        return lambda body: read(BytesIO(body), parsed, None)

    def writer(self, client: RegistryClient, schema: Schema) -> Write:
        parsed = self.parsed(client, schema)
        write = self.fastavro.schemaless_writer
        validate = self.fastavro.validation.validate
        refused = self.fastavro.validation.ValidationError

        def encode(item: Any) -> bytes:
            try:
                # The writer alone cuts a fraction off, and writes numbers that are too large for their type.
                validate(item, parsed)
                if is_bytes(parsed):
                    return bytes(item)
                out = BytesIO()
                write(out, parsed, item, strict_allow_default=True)
            except refused as error:
                why = "; ".join(str(each) for each in error.errors)
                raise SchemaRegistryError(f"the item does not match the schema: {why[:500]}") from None
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                raise SchemaRegistryError(f"the item does not match the schema: {error}") from None
            return out.getvalue()

        return encode


PARSE_ERRORS: tuple[type[Exception], ...] = (ValueError, TypeError, KeyError, AttributeError)
"""What fastavro raises of text that is no schema, besides errors of its own."""
ROOT = "$root"
"""The name under which a schema is loaded that is not a reference."""


def is_bytes(parsed: Any) -> bool:
    """Whether the whole value is bytes, which the serializers write without their length."""
    return parsed == "bytes" or (
        isinstance(parsed, dict) and parsed.get("type") == "bytes" and "logicalType" not in parsed
    )


class JsonSchema:
    """JSON, by jsonschema where it is validated."""

    kind = "JSON"

    def __init__(
        self,
        schema: object = None,
        references: Sequence[tuple[str, str, int]] = (),
        validate: bool = True,
    ) -> None:
        if validate:
            try:
                import jsonschema  # type: ignore[import-untyped]  # noqa: F401
                import referencing  # noqa: F401
            except ImportError:
                raise ImportError(
                    "JSON Schema needs the package jsonschema: pip install 'millstream[json-schema]'"
                ) from None
        self.validate = validate
        self.given = own_schema(schema, self.kind, references)

    def own(self, client: RegistryClient, register: bool) -> Schema | None:
        return self.given

    def record_name(self) -> str | None:
        schema = None if self.given is None else json.loads(self.given.text)
        title = schema.get("title") if isinstance(schema, dict) else None
        return title if isinstance(title, str) else None

    def reader(self, client: RegistryClient, schema: Schema) -> Read:
        if not self.validate:
            return load
        check = self.check(client, schema)

        def decode(body: bytes) -> Any:
            item = load(body)
            check(item, "value")
            return item

        return decode

    def writer(self, client: RegistryClient, schema: Schema) -> Write:
        check = self.check(client, schema)

        def encode(item: Any) -> bytes:
            check(item, "item")
            return dump(item).encode()

        return encode

    def check(self, client: RegistryClient, schema: Schema) -> Callable[[Any, str], None]:
        """A function that raises SchemaRegistryError for an item that does not match."""
        from jsonschema import SchemaError
        from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
        from jsonschema.validators import validator_for  # type: ignore[import-untyped]
        from referencing import Registry, Resource
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT7

        text = json.loads(schema.text)
        kind = validator_for(text, default=validator_for({"$schema": DRAFT_7}))
        known: Any = Registry().with_resources(
            (name, Resource.from_contents(other, default_specification=DRAFT7))
            for name, other in referenced(client, schema)
        )
        number = f" with the id {schema.id}" if schema.id else ""
        try:
            kind.check_schema(text)
        except SchemaError as error:
            raise SchemaRegistryError(f"the schema{number} is no JSON Schema: {error.message}") from None
        validator = kind(text, registry=known)

        def check(item: Any, what: str) -> None:
            try:
                found = best_match(validator.iter_errors(item))
            except Unresolvable as error:
                raise SchemaRegistryError(
                    f'the schema{number} refers to "{error.ref}", which is in none of its references'
                ) from None
            if found is not None:
                raise SchemaRegistryError(
                    f"the {what} does not match the schema: {found.json_path}: {found.message[:500]}"
                )

        return check


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
"""What a schema is that does not say it: the default of registries."""
