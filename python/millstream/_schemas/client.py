"""The client of a schema registry: schemas by id, by subject and version, and the ids of schemas.

A registry never changes the answer for an id or a version, so a client asks once for each. "It is not there"
and "the address is wrong" are both the status 404: a registry says the first with an error code of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .._errors.delivery import of_status
from .._errors.flow import FlowUsageError
from .errors import SchemaRegistryError, SchemaRegistryUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


TIMEOUT_SECONDS = 10.0
ABSENT = (40401, 40402, 40403)
"""The error codes of a registry for a subject, a version or a schema that it does not have."""
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
SERIALIZED = "?format=serialized"
"""The schema of Protobuf as a descriptor, from a registry that knows the parameter."""


@dataclass(frozen=True)
class Reference:
    """A schema that another one refers to.

    Args:
        name: the name by which the other one refers to it: of a type, a URI, or the path of a file.
        subject: the subject that it is a version of.
        version: the number of the version.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema.

    Args:
        text: what the registry stores.
        kind: ``"AVRO"``, ``"JSON"`` or ``"PROTOBUF"``.
        references: the schemas that it refers to.
        id: its id; 0 if it is not known.
        version: its number in the subject; 0 if it is not known.
    """

    text: str
    kind: str
    references: tuple[Reference, ...] = ()
    id: int = field(default=0, compare=False)
    version: int = field(default=0, compare=False)

    @classmethod
    def of(cls, answer: dict[str, Any], number: int) -> Schema:
        found = answer.get("references") or ()
        references = tuple(Reference(each["name"], each["subject"], each["version"]) for each in found)
        # Registries leave the type of Avro out: it is older than the others.
        kind = answer.get("schemaType") or "AVRO"
        return cls(answer["schema"], kind, references, answer.get("id", number), answer.get("version", 0))

    def request(self) -> dict[str, Any]:
        made: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            made["schemaType"] = self.kind
        if self.references:
            made["references"] = [vars(reference) for reference in self.references]
        return made


class Absent(Exception):
    """The registry does not have what it was asked for; the text is its own."""


class RegistryClient:
    """Asks one registry. Several threads may share it; none waits for another one.

    Args:
        address: the address of the registry.
        headers: headers of requests.

    Raises:
        FlowUsageError: the address is none.
    """

    def __init__(self, address: str, headers: Mapping[str, str] | None) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(address) if isinstance(address, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise FlowUsageError(
                f'the address of a schema registry is such as "http://localhost:8081", not {address!r}'
            )
        if "@" in parts.netloc:
            # The address is in messages, which must have no password.
            raise FlowUsageError(
                "the address of a schema registry has no user and password: pass them as "
                'headers={"Authorization": "Basic ..."}'
            )
        self.address = address.rstrip("/")
        self.headers = dict(headers or {})
        self.versions: dict[tuple[str, int], Schema] = {}

    def by_id(self, number: int, kind: str) -> Schema:
        """The schema with an id.

        Raises:
            SchemaRegistryError: there is none, or it is of another kind.
        """
        form = SERIALIZED if kind == "PROTOBUF" else ""
        try:
            found = Schema.of(self.ask(f"/schemas/ids/{number}{form}"), number)
        except Absent:
            raise SchemaRegistryError(f"{self.address} has no schema with the id {number}") from None
        if found.kind != kind:
            raise SchemaRegistryError(f"the schema with the id {number} is {found.kind}, not {kind}")
        return found

    def version(self, reference: Reference) -> Schema:
        """The schema that a reference names."""
        key = (reference.subject, reference.version)
        if key not in self.versions:
            path = f"/subjects/{quoted(reference.subject)}/versions/{reference.version}?deleted=true"
            try:
                self.versions[key] = Schema.of(self.ask(path), 0)
            except Absent as error:
                raise FlowUsageError(
                    f'{self.address}: version {reference.version} of the subject "{reference.subject}", '
                    f"which a schema refers to, is missing ({error}): register it first"
                ) from None
        return self.versions[key]

    def latest(self, subject: str, kind: str) -> Schema:
        """The newest version of a subject."""
        form = SERIALIZED if kind == "PROTOBUF" else ""
        try:
            found = Schema.of(self.ask(f"/subjects/{quoted(subject)}/versions/latest{form}"), 0)
        except Absent as error:
            raise FlowUsageError(
                f'{self.address} has no subject "{subject}" ({error}): register a schema for it, or pass '
                "schema= and register=True"
            ) from None
        if found.kind != kind:
            raise FlowUsageError(f'the newest version of "{subject}" is {found.kind}, not {kind}')
        return found

    def registered(self, subject: str, schema: Schema) -> Schema:
        """A schema of a subject, with its id and version."""
        try:
            found = self.ask(f"/subjects/{quoted(subject)}", schema.request())
        except Absent as error:
            raise FlowUsageError(
                f'{self.address} does not have this schema for the subject "{subject}" ({error}): register '
                "it, or pass register=True; latest=True takes the newest version of the subject"
            ) from None
        return Schema(schema.text, schema.kind, schema.references, found["id"], found["version"])

    def register(self, subject: str, schema: Schema) -> int:
        """Registers a schema for a subject unless it has it; returns its id."""
        number = self.ask(f"/subjects/{quoted(subject)}/versions", schema.request())["id"]
        assert isinstance(number, int)
        return number

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request, a POST if it has a body.

        Raises:
            Absent: the registry does not have it.
            SchemaRegistryUnavailable: it does not answer, or not now.
            FlowUsageError: it refuses the request: whatever the item is, the next one fails, too.
        """
        import json
        from http.client import HTTPException
        from ssl import SSLCertVerificationError
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        headers = {"Accept": f"{MEDIA_TYPE}, application/json", **self.headers}
        data = None
        if body is not None:
            headers["Content-Type"] = MEDIA_TYPE
            data = json.dumps(body).encode()
        try:
            request = Request(self.address + path, data, headers)
            with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except HTTPError as error:
            raise self.refused(error) from None
        except (OSError, HTTPException, ValueError) as error:
            cause = error.reason if isinstance(error, URLError) else error
            reason = f"the schema registry {self.address} does not answer: {cause}"
            if isinstance(cause, SSLCertVerificationError):
                raise FlowUsageError(reason) from None
            raise SchemaRegistryUnavailable(reason) from None

    def refused(self, error: Any) -> Exception:
        """The exception for an answer that is no success."""
        number, words = own_words(error)
        text = f"the schema registry {self.address} answers {error.code} {words or error.reason}"
        if error.code == 404 and number in ABSENT:
            return Absent(words)
        if of_status(error.code) == "retry":
            return SchemaRegistryUnavailable(text)
        if error.code == 409:
            return FlowUsageError(f"{text}: change the schema, or the compatibility of the subject")
        if error.code in (401, 403):
            return FlowUsageError(f"{text}: check the rights of headers=")
        if error.code == 422:
            return FlowUsageError(text)
        return FlowUsageError(f"{text}: check its address, and the rights of headers=")


def own_words(error: Any) -> tuple[int, str]:
    """The error code of a registry and its text; 0 and nothing if the answer is not a registry's."""
    import json
    from http.client import HTTPException

    try:
        found = json.loads(error.read(100_000))
        return int(found["error_code"]), " ".join(str(found["message"]).split())
    except (OSError, HTTPException, ValueError, TypeError, KeyError):
        return 0, ""


def quoted(subject: str) -> str:
    """A subject as a part of a path.

    >>> quoted("common/customer.proto")
    'common%2Fcustomer.proto'
    """
    from urllib.parse import quote

    return quote(subject, safe="")
