"""Places for objects: a prefix in a bucket, or a directory, which a test looks at without millstream."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet
from s3_server import Bucket

__all__ = ["Directory", "InBucket", "Place", "compressed", "items_of"]


class Place(Protocol):
    """Objects below a prefix."""

    @property
    def url(self) -> str: ...

    @property
    def config(self) -> dict[str, str] | None: ...

    def put(self, name: str, content: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self) -> list[str]:
        """The names of all objects from the prefix on, for a test that waits for one."""

    def contents(self) -> dict[str, bytes]:
        """All objects by their names from the prefix on."""


class InBucket:
    """A prefix in a bucket."""

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self.bucket = bucket
        self.prefix = prefix
        self.url = f"s3://{bucket.name}/{prefix}"
        self.config = bucket.server.config()

    def put(self, name: str, content: bytes) -> None:
        self.bucket.put(f"{self.prefix}/{name}", content)

    def remove(self, name: str) -> None:
        self.bucket.client.delete_object(Bucket=self.bucket.name, Key=f"{self.prefix}/{name}")

    def names(self) -> list[str]:
        skip = len(self.prefix) + 1
        return [name[skip:] for name in self.bucket.names(f"{self.prefix}/")]

    def contents(self) -> dict[str, bytes]:
        return {name: self.bucket.get(f"{self.prefix}/{name}") for name in self.names()}


class Directory:
    """A local directory."""

    config = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)

    def put(self, name: str, content: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}#1")
        new.write_bytes(content)
        new.rename(path)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def names(self) -> list[str]:
        """The files, without those of attempts that were interrupted, which obstore does not list either."""
        found = [
            str(Path(folder, name).relative_to(self.path))
            for folder, _, names in os.walk(self.path)
            for name in names
            if not name.rpartition("#")[2].isdigit()
        ]
        return sorted(found)

    def contents(self) -> dict[str, bytes]:
        return {name: (self.path / name).read_bytes() for name in self.names()}


def uncompressed(name: str, content: bytes) -> tuple[str, bytes]:
    """An object without its compression, by gzip of the standard library and zstd of pyarrow."""
    if name.endswith(".gz"):
        return name.removesuffix(".gz"), gzip.decompress(content)
    if name.endswith(".zst"):
        stream = pyarrow.input_stream(pyarrow.BufferReader(content), compression="zstd")
        return name.removesuffix(".zst"), bytes(stream.read())
    return name, content


def compressed(ending: str, content: bytes) -> bytes:
    """An object with a compression, by the same libraries."""
    if ending == ".zst":
        return bytes(pyarrow.compress(content, codec="zstd"))
    return gzip.compress(content) if ending == ".gz" else content


def items_of(contents: dict[str, bytes]) -> list[Any]:
    """The items of objects in the order of their names."""
    items: list[Any] = []
    for name, content in contents.items():
        name, content = uncompressed(name, content)
        if name.endswith(".parquet"):
            items += pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        elif name.endswith(".jsonl"):
            items += [json.loads(line) for line in content.decode().splitlines()]
        else:
            items += content.decode().split("\n")[:-1]
    return items
