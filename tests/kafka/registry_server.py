"""A schema registry for tests, in memory: subjects, versions, ids, references, and Confluent's error codes.

One schema has one id, whatever subjects have it. Where the variable ``MILLSTREAM_SCHEMA_REGISTRY`` has the
address of a real registry, ``test_schema_interop.py`` runs with that one.
"""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["Registry", "registry_server"]

SUBJECT = 40401
VERSION = 40402
SCHEMA = 40403


class Refusal(Exception):
    """An answer that is no success: a status, an error code, and a text."""


class Registry(ThreadingHTTPServer):
    """A running registry.

    ``asked`` has the requests. The next answers are ``statuses``, without a body, as long as there are some.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.sent: list[dict[str, str]] = []
        self.statuses: list[int] = []
        self.levels: dict[str, str] = {}
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Any = (), number: int = 0
    ) -> int:
        """Registers a schema for a subject, with an id of the test's choice; returns the id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        made = {"schema": text, "schemaType": kind, "references": list(references)}
        found = [known for known, other in self.schemas.items() if other == made]
        number = found[0] if found else number or max(self.schemas, default=0) + 1
        self.schemas[number] = made
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: list[str], query: dict[str, Any], body: Any) -> dict[str, Any]:
        if method == "GET" and path[:2] == ["schemas", "ids"]:
            if int(path[2]) not in self.schemas:
                raise Refusal(404, SCHEMA, "Schema not found")
            return self.shown(int(path[2]), query)
        if method == "PUT" and path[0] == "config":
            self.levels[unquote(path[1])] = body["compatibility"]
            return {"compatibility": body["compatibility"]}
        if path[0] != "subjects":
            raise Refusal(404, 404, "HTTP 404 Not Found")
        subject = unquote(path[1])
        if method == "POST" and path[2:] == ["versions"]:
            if subject in self.levels and not self.compares(subject, body["schema"]):
                words = 'Schema being registered is incompatible with an earlier schema for subject "orders"'
                raise Refusal(409, 409, words)
            made = self.add(
                subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references", ())
            )
            return {"id": made}
        if subject not in self.subjects:
            raise Refusal(404, SUBJECT, f"Subject '{subject}' not found.")
        versions = self.subjects[subject]
        if method == "POST":
            kind = body.get("schemaType", "AVRO")
            references = body.get("references", [])
            wanted = {"schema": body["schema"], "schemaType": kind, "references": references}
            for version, number in enumerate(versions, 1):
                if self.schemas[number] == wanted:
                    return {"subject": subject, "id": number, "version": version, "schema": body["schema"]}
            raise Refusal(404, SCHEMA, "Schema not found")
        version = len(versions) if path[3] == "latest" else int(path[3])
        if not 1 <= version <= len(versions):
            raise Refusal(404, VERSION, f"Version {version} not found.")
        number = versions[version - 1]
        return self.shown(number, query) | {"subject": subject, "version": version, "id": number}

    def compares(self, subject: str, text: str) -> bool:
        """Whether a schema is of the same type as the newest of a subject: all that tests need."""
        newest = self.schemas[self.subjects[subject][-1]]["schema"]
        return bool(json.loads(newest)["type"] == json.loads(text)["type"])

    def shown(self, number: int, query: dict[str, Any]) -> dict[str, Any]:
        """A schema as a registry answers: without what is as in the oldest version of its interface."""
        schema = dict(self.schemas[number])
        if schema["schemaType"] == "AVRO":
            del schema["schemaType"]
        elif schema["schemaType"] == "PROTOBUF" and query.get("format") != ["serialized"]:
            b64decode(schema["schema"])
            schema["schema"] = 'syntax = "proto3";'
        if not schema["references"]:
            del schema["references"]
        return schema


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def respond(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        with self.server.lock:
            parts = urlsplit(self.path)
            self.server.asked.append(f"{method} {parts.path}")
            self.server.sent.append(dict(self.headers))
            if self.server.statuses:
                self.send_error(self.server.statuses.pop(0))
                return
            try:
                path = parts.path.strip("/").split("/")
                status = 200
                answer = self.server.answer(method, path, parse_qs(parts.query), body)
            except Refusal as error:
                status, code, message = error.args
                answer = {"error_code": code, "message": message}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.respond("GET")

    def do_PUT(self) -> None:
        self.respond("PUT")

    def do_POST(self) -> None:
        self.respond("POST")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def registry_server() -> Iterator[Registry]:
    """Runs a registry."""
    server = Registry()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
