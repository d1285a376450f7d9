"""Files as sources and sinks: lines of text, or frames of bytes."""

from __future__ import annotations

from typing import overload

from . import _millstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import Any, Literal

    from ._types import Decoder, Frame, U

    Path = str | os.PathLike[str]

__all__ = ["frames", "lines", "write"]

MAX_FRAME = 1 << 20


def _paths(path: Path | Sequence[Path]) -> list[Path]:
    return list(path) if isinstance(path, (list, tuple)) else [path]  # type: ignore[list-item]


def lines(path: Path | Sequence[Path], max_frame: int = MAX_FRAME) -> _millstream.ByteSource[str]:
    """The lines of a text file (UTF-8), without their ends; of several files, each is a partition."""
    return frames(path, "lines", str, max_frame)


@overload
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: None = None,
    max_frame: int = MAX_FRAME,
    position: int = 0,
) -> _millstream.ByteSource[bytes]: ...
@overload
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: Decoder[U] = ...,
    max_frame: int = MAX_FRAME,
    position: int = 0,
) -> _millstream.ByteSource[U]: ...
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: type | Callable[[bytes], Any] | None = None,
    max_frame: int = MAX_FRAME,
    position: int = 0,
) -> _millstream.ByteSource[Any]:
    """The frames of a file, from byte ``position`` on; see :mod:`millstream.tcp` for ``framing`` and
    ``decode``."""
    return _millstream.file_read(
        _paths(path), framing=framing, max_frame=max_frame, decode=decode, position=position
    )


@overload
def write(
    path: Path, framing: Literal["lines"] = "lines", encode: None = None
) -> _millstream.ByteSink[object]: ...
@overload
def write(path: Path, framing: str = "lines", encode: None = None) -> _millstream.ByteSink[Frame]: ...
@overload
def write(
    path: Path, framing: str = "lines", encode: Callable[[U], Frame] = ...
) -> _millstream.ByteSink[U]: ...
def write(
    path: Path, framing: str = "lines", encode: Callable[[Any], Any] | None = None
) -> _millstream.ByteSink[Any]:
    """Writes a file anew: bytes, str or records, or what ``encode`` makes of them; as lines, ``str`` of
    anything."""
    return _millstream.file_write(path, framing=framing, encode=encode)
