"""Fixed-layout records: classes whose instances keep bytes and decode a field when it is read."""

from __future__ import annotations

from .. import _millstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class RecordType(type):
    """The type of record classes: reads the format, and puts a descriptor for each field on the class."""

    def __new__(
        meta,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        format: str | None = None,
        fields: str | Sequence[str] | None = None,
    ) -> RecordType:
        namespace.setdefault("__slots__", ())
        if format is not None and isinstance(fields, str):
            fields = fields.split()
        cls = super().__new__(meta, name, bases, namespace)
        if format is None:
            if fields is not None:
                raise ValueError(f"record {name}: fields without a format")
            hidden = [
                field
                for field in namespace
                if isinstance(getattr(super(cls, cls), field, None), _millstream.Field)
            ]
            if hidden:
                raise ValueError(
                    f"record {name}: {hidden[0]!r} is a field of its base; give a format of its own"
                )
            return cls
        if fields is None:
            fields = list(cls.__dict__.get("__annotations__", ()) or getattr(cls, "__annotations__", ()))
        names = list(fields)
        taken = [field for field in names if names.count(field) > 1 or hasattr(_millstream.Record, field)]
        wrong = taken or [field for field in names if not field.isidentifier()]
        if wrong:
            raise ValueError(f"record {name}: {wrong[0]!r} cannot be the name of a field, or is used twice")
        try:
            constants = {field: cls.__dict__[field] for field in names if field in cls.__dict__}
            layout = _millstream.Layout(format, names, constants)
        except ValueError as error:
            raise ValueError(f"record {name}: {error}") from None
        cls._layout = layout  # type: ignore[attr-defined]
        for field, descriptor in layout.fields.items():
            setattr(cls, field, descriptor)
        return cls


class Record(_millstream.Record, metaclass=RecordType):
    """The base of classes of records: bytes in a fixed layout, whose fields are decoded when they are read.

    ``class NAME(ms.Record, format=..., fields=...)`` declares a class of records:

    - ``format`` is a format string of the module ``struct`` that begins with its byte order (``< > = !``).
    - ``fields`` are the names of the fields, as text or as a list; without it, those of the annotations.
    - A field to which the class assigns a value is *constant*: each record has that value, and bytes with
      another one are no such record.

    ``pack`` and ``unpack`` make records. A record does not change and has its own copy of its bytes.

    Example:
        >>> import millstream as ms
        >>> class Quote(ms.Record, format=">4sdd", fields="symbol bid offer"):
        ...     def mid(self) -> float:
        ...         return (self.bid + self.offer) / 2
        >>> quote = Quote.pack(b" IBM", bid=10.0, offer=10.5)
        >>> quote.symbol, quote.mid(), len(quote)
        (b' IBM', 10.25, 20)
        >>> quote
        Quote(symbol=b' IBM', bid=10.0, offer=10.5)
        >>> Quote.unpack(bytes(quote)) == quote
        True
        >>> class Cancel(ms.Record, format=">BI", fields="type order"):
        ...     type = 3
        >>> bytes(Cancel.pack(order=7))
        b'\\x03\\x00\\x00\\x00\\x07'
        >>> Cancel.unpack(b"\\x04\\x00\\x00\\x00\\x07")
        Traceback (most recent call last):
        ValueError: Cancel.type is 3, not 4
    """

    if TYPE_CHECKING:

        def __getattr__(self, field: str) -> Any: ...
