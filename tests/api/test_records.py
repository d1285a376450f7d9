"""Records, judged by the struct module."""

import copy
import pickle
import random
import struct

import millstream as ms
import pytest


class Order(ms.Record, format=">BBI6s4sdd21s", fields="type side account id symbol quantity price time"):
    pass


VALUES = (1, 2, 300, b"order1", b" IBM", 10.0, 99.5, b"20260101-10:00:00.000")
RANGES = {"b": 8, "B": 8, "h": 16, "H": 16, "i": 32, "I": 32, "l": 32, "L": 32, "q": 64, "Q": 64}


def value_of(code: str, length: int, chance: random.Random) -> object:
    if code in RANGES:
        bits = RANGES[code]
        low, high = (0, (1 << bits) - 1) if code.isupper() else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return chance.choice([low, high, 0, chance.randint(low, high)])
    if code in "efd":
        return chance.choice([0.0, -0.0, 1.5, float("inf"), chance.uniform(-60_000, 60_000), 6e-8])
    if code == "?":
        return chance.random() < 0.5
    return chance.randbytes(1 if code == "c" else length)


@pytest.mark.parametrize("seed", range(200))
def test_any_format_reads_as_struct_does(seed: int) -> None:
    chance = random.Random(seed)
    parts = []
    values = []
    for _ in range(chance.randint(1, 12)):
        code = chance.choice("xcbB?hHiIlLqQefds")
        count = chance.choice([None, 0, 1, 3])
        parts.append(("" if count is None else str(count)) + code + chance.choice(["", " "]))
        times = 1 if count is None else count
        if code == "s":
            values.append(value_of("s", times, chance))
        elif code != "x":
            values += [value_of(code, 1, chance) for _ in range(times)]
    format = chance.choice("<>=!") + "".join(parts)
    names = [f"f{index}" for index in range(len(values))]
    record_class = type(ms.Record)("Any", (ms.Record,), {}, format=format, fields=names)
    packed = struct.pack(format, *values)
    record = record_class.unpack(packed)
    read = [getattr(record, name) for name in names]
    assert repr(read) == repr(list(struct.unpack(format, packed))), (seed, format)
    assert bytes(record_class.pack(*values)) == packed and len(record) == struct.calcsize(format)


def test_a_record_is_a_value() -> None:
    order = Order.pack(*VALUES)
    assert order == Order.unpack(bytes(order)) and hash(order) == hash(copy.copy(order))
    assert order != Order.pack(*VALUES[:-1], time=b"") and order != bytes(order)
    assert pickle.loads(pickle.dumps(order)) == order
    assert order.to_dict()["symbol"] == b" IBM" and "price=99.5" in repr(order)
    with pytest.raises(AttributeError, match="price"):
        order.price = 1.0
    with pytest.raises(AttributeError):
        order.other = 1
    with pytest.raises(TypeError):
        Order()


def test_long_records_and_annotations() -> None:
    class Long(ms.Record, format="<200sH"):
        body: bytes
        number: int

    record = Long.pack(b"x" * 200, 7)
    assert (record.number, len(record.body), len(record)) == (7, 200, 202)


class Cancel(ms.Record, format=">2sBI", fields="mark kind order"):
    mark = b"MS"
    kind = 3


def test_a_constant_is_packed_by_itself_and_compared_at_decode() -> None:
    cancel = Cancel.pack(7)
    assert bytes(cancel) == b"MS\3\0\0\0\7" and (cancel.mark, cancel.kind, cancel.order) == (b"MS", 3, 7)
    assert Cancel.pack(**cancel.to_dict()) == Cancel.pack(order=7) == Cancel.unpack(bytes(cancel)) == cancel
    for wrong, says in [(b"MT\3", "Cancel.mark is b'MS', not b'MT'"), (b"MS\2", "Cancel.kind is 3, not 2")]:
        with pytest.raises(ValueError, match=says):
            Cancel.unpack(wrong + b"\0\0\0\7")
    with pytest.raises(ValueError, match="Cancel.kind is 3, not 4"):
        Cancel.pack(order=7, kind=4)
    with pytest.raises(TypeError, match="takes 1 values, each once: order"):
        Cancel.pack(b"MS", 3, 7)

    class Annotated(ms.Record, format="<bH"):
        kind: int = -1
        number: int

    assert bytes(Annotated.pack(2)) == b"\xff\2\0"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("kind", 256, "kind cannot have the value 256: (ubyte|'B') format requires"),
        ("kind", "3", "kind cannot have the value '3'"),
        ("mark", b"MSX", "mark cannot have the value b'MSX': it has 2 bytes"),
        ("mark", b"M", "it has 2 bytes"),
        ("order", lambda self: 1, "order cannot have the value <function"),
    ],
)
def test_a_constant_that_its_field_cannot_hold_is_an_error_of_the_class(
    field: str, value: object, says: str
) -> None:
    with pytest.raises(ValueError, match=f"record Bad: .*{says}"):
        type(ms.Record)("Bad", (ms.Record,), {field: value}, format=">2sBI", fields="mark kind order")


def test_a_class_without_a_format_of_its_own_cannot_hide_a_field() -> None:
    with pytest.raises(ValueError, match="record Other: 'kind' is a field of its base"):

        class Other(Cancel):
            kind = 4


@pytest.mark.parametrize(
    ("format", "fields", "says"),
    [
        (">HH", "a", "record Bad: .* 2 fields, but 1"),
        (">H", "a b", "1 fields, but 2"),
        ("HH", "a b", "byte order"),
        ("@HH", "a b", "byte order"),
        (">P", "a", "not supported"),
        (">n", "a", "not supported"),
        (">H3", "a", "ends in a number"),
        (">99999999999999999999999s", "a", "too long"),
        (">999999999s", "a", "too long"),
        (">HH", "a a", "used twice"),
        (">H", "pack", "cannot be the name"),
        (">H", ["not a name"], "cannot be the name"),
        (None, "a", "without a format"),
    ],
)
def test_a_wrong_format_is_an_error_of_the_class(format: str, fields: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):

        class Bad(ms.Record, format=format, fields=fields):
            pass


def test_wrong_values() -> None:
    with pytest.raises(ValueError, match="Order has 53 bytes, not 3"):
        Order.unpack(b"abc")
    with pytest.raises(TypeError, match="no value for time"):
        Order.pack(*VALUES[:-1])
    with pytest.raises(TypeError, match="each once"):
        Order.pack(*VALUES, time=b"")
    with pytest.raises(TypeError, match="each once"):
        Order.pack(*VALUES[:-1], time=b"", colour=1)
    with pytest.raises(struct.error):
        Order.pack(256, *VALUES[1:])
    with pytest.raises(TypeError, match="has no format"):
        ms.tcp.listen("127.0.0.1:0", decode=ms.Record)
