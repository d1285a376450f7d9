"""A prefix in an object store: objects are listed, read and created below it."""

from __future__ import annotations

import io
import logging
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass

from .._errors.flow import FlowUsageError
from .errors import ObjectError, failure, is_not_supported, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any


log = logging.getLogger("millstream.flow.sink")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Variables that the library takes the address of S3 from, if the configuration has none."""
CHUNK = 1 << 20
"""How much of an object is read at once, in bytes."""


def import_obstore() -> Any:
    """Imports the client library; an error that names the remedy where it is missing."""
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise ObjectError(f"ms.objects needs obstore ({error}): pip install 'millstream[s3]'") from None
    return obstore


def describe(where: object) -> str:
    """The name of a store in messages, without its secrets.

    >>> describe("s3://bucket/orders")
    's3://bucket/orders'
    """
    if isinstance(where, (str, os.PathLike)):
        return os.fspath(where)
    kind = type(where).__name__
    prefix = getattr(where, "prefix", None)
    config = getattr(where, "config", {}) or {}
    if kind == "S3Store":
        return f"s3://{config.get('bucket', '')}/{prefix or ''}".rstrip("/")
    return str(prefix) if kind == "LocalStore" and prefix else kind


def endpoint_of(config: Mapping[str, Any]) -> str | None:
    """The address of S3 in a configuration or the environment; None: that of AWS.

    >>> endpoint_of({"aws_endpoint": "http://127.0.0.1:9000"})
    'http://127.0.0.1:9000'
    """
    given = {key.lower().removeprefix("aws_"): value for key, value in config.items()}
    for name in ("endpoint", "endpoint_url"):
        if name in given:
            return str(given[name])
    return next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)


def open_store(
    where: str | os.PathLike[str] | Any, config: Mapping[str, Any] | None, seconds: float, create: bool
) -> Any:
    """Opens a store; a store that is given is returned.

    Args:
        where: a URL, the path of a directory, or a store of obstore.
        config: the configuration of a store with a URL.
        seconds: the limit for one request.
        create: whether a local directory is created if it is missing.

    Raises:
        FlowUsageError: the URL or the configuration is wrong.
        ObjectError: a local directory is missing.
    """
    store = import_obstore().store
    if not isinstance(where, (str, os.PathLike)):
        return where
    url = os.fspath(where)
    try:
        if not re.match(r"[a-z][a-z0-9+.-]*://", url):
            return store.LocalStore(os.path.abspath(url), mkdir=create)
        if url.startswith("file://"):
            return store.LocalStore.from_url(url, mkdir=create)
        options: dict[str, Any] = {"timeout": f"{round(seconds * 1000)}ms"}
        if (endpoint_of(config or {}) or "").startswith("http://"):
            options["allow_http"] = True
        # The outbox and the source make attempts of their own, which are logged and counted.
        return store.from_url(
            url,
            config=dict(config) if config else None,
            client_options=options,
            retry_config={"max_retries": 0},
        )
    except Exception as error:
        if "UnableToCanonicalize" in str(error):
            raise ObjectError(f"{url}: there is no such directory") from None
        if isinstance(error, OSError):
            raise
        raise FlowUsageError(f"{describe(where)}: {reason(error)}") from None


@dataclass(frozen=True)
class Found:
    """An object that was listed: its name from the prefix on, and its size in bytes."""

    name: str
    size: int


class Prefix:
    """The objects of a store below a prefix.

    Args:
        store: a store of obstore.
        address: its name in messages.
        prefix: the prefix within the store; empty for all its objects.
    """

    def __init__(self, store: Any, address: str, prefix: str = "") -> None:
        self.obstore = import_obstore()
        self.store = store
        endpoint = endpoint_of(store.config) if type(store).__name__ == "S3Store" else None
        self.address = f"{address} at {endpoint}" if endpoint else address
        self.prefix = prefix.strip("/")
        self.creates = True

    def path(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    @contextmanager
    def named(self, name: str | None = None) -> Iterator[None]:
        """Errors of the library become ours, with the names of the store and the object."""
        from obstore import exceptions

        try:
            yield
        except (exceptions.BaseError, OSError, NotImplementedError, ValueError) as error:
            at = "" if name is None else f', object "{self.path(name)}"'
            raise failure(error, f"{self.address}{at}") from None

    def listed(self, inside: str = "", after: str | None = None) -> Iterator[Found]:
        """Lists the objects, in no particular order.

        Args:
            inside: a directory; empty for all.
            after: a name; the names of the objects are greater.
        """
        with self.named():
            where = "/".join(part for part in (self.prefix, inside) if part)
            offset = None if after is None else self.path(after)
            stream = self.obstore.list(self.store, where or None, offset=offset)
            skip = len(self.prefix) + 1 if self.prefix else 0
            for chunk in stream:
                for meta in chunk:
                    yield Found(meta["path"][skip:], meta["size"])

    def some(self, inside: str, after: str) -> list[Found]:
        """A thousand of the objects that :meth:`listed` returns, or all of them."""
        found = []
        for each in self.listed(inside, after):
            found.append(each)
            if len(found) == 1000:
                break
        return found

    def read(self, name: str, start: int, end: int) -> bytes:
        """Reads a part of an object."""
        with self.named(name):
            return bytes(self.obstore.get_range(self.store, self.path(name), start=start, end=end))

    def chunks(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Reads an object from an offset on."""
        with self.named(name):
            options = {"range": {"offset": start}} if start else None
            got = self.obstore.get(self.store, self.path(name), options=options)
            for chunk in got.stream(min_chunk_size=CHUNK):
                yield bytes(chunk)

    def create(self, name: str, content: bytes) -> bool:
        """Creates an object; false if it exists. A store that knows no conditions replaces it."""
        from obstore import exceptions

        path = self.path(name)
        with self.named(name):
            try:
                self.put(path, content)
            except exceptions.AlreadyExistsError:
                return False
            if type(self.store).__name__ == "LocalStore":
                sync(self.store.prefix, path)
        return True

    def remove(self, name: str) -> None:
        """Removes an object."""
        with self.named(name):
            self.obstore.delete(self.store, self.path(name))

    def put(self, path: str, content: bytes) -> None:
        from obstore import exceptions

        mode = "create" if self.creates else "overwrite"
        try:
            self.obstore.put(self.store, path, content, mode=mode, use_multipart=False)
        except (exceptions.BaseError, NotImplementedError) as error:
            if not (self.creates and is_not_supported(error)):
                raise
            log.warning(
                "%s: the store cannot create objects on the condition that they do not exist: two copies "
                "of a state directory would not be noticed",
                self.address,
            )
            self.creates = False
            self.put(path, content)


class Reader(io.RawIOBase):
    """An object as a file that is read at any offset.

    ``failure`` is the error of the store, if a read has failed: what reads the file may report another one.
    """

    def __init__(self, prefix: Prefix, found: Found) -> None:
        self.prefix = prefix
        self.found = found
        self.at = 0
        self.failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.found.size}[whence]
        self.at = max(0, start + offset)
        return self.at

    def readinto(self, buffer: Any) -> int:
        end = min(self.at + len(buffer), self.found.size)
        if end <= self.at:
            return 0
        try:
            got = self.prefix.read(self.found.name, self.at, end)
        except Exception as error:
            self.failure = error
            raise
        buffer[: len(got)] = got
        self.at += len(got)
        return len(got)


def sync(root: Path | None, path: str) -> None:
    """Makes a new file of a local directory durable, with the entries of its directories."""
    full = os.path.join(root or "/", path)
    top = os.path.dirname(os.path.abspath(root or "/"))
    while True:
        number = os.open(full, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
        if full in (top, os.path.dirname(full)):
            return
        full = os.path.dirname(full)
