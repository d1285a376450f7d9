"""A verb on the wrong kind of stream: the error says where it belongs."""

from __future__ import annotations

import copy
import pickle

import millstream as ms
import pytest
from millstream import testing

PLACES = {
    ("KeyedStream", "event_time"): "event_time is a verb of Stream: call it before key_by",
    ("KeyedStream", "processing_time"): "processing_time is a verb of Stream: call it before key_by",
    ("LateStream", "event_time"): "event_time is a verb of Stream: call it before key_by",
    ("Windows", "event_time"): "event_time is a verb of Stream: call it before key_by",
    ("KeyedStream", "key_by"): "key_by is a verb of Stream: call values() or items() first",
    ("KeyedStream", "redistribute"): "redistribute is a verb of Stream: call values() or items() first",
    ("KeyedStream", "aggregate"): "aggregate is a verb of Windows: call window first",
    ("KeyedStream", "late"): "late is an attribute of what windows and joins give",
    ("Stream", "window"): "window is a verb of KeyedStream: call key_by first",
    ("Stream", "count"): "count is a verb of KeyedStream: call key_by first",
    ("Stream", "stateful"): "stateful is a verb of KeyedStream: call key_by first",
    ("Stream", "join"): "join is a verb of KeyedStream: call key_by first",
    ("Stream", "aggregate"): "aggregate is a verb of Windows: call key_by and window first",
    ("Stream", "late"): "late is an attribute of what windows and joins give",
    ("Stream", "source"): "source is a verb of Flow",
    (
        "Windows",
        "map",
    ): "map is a verb of KeyedStream: make a result of each window first, as count() does",
    (
        "Windows",
        "join",
    ): "join is a verb of KeyedStream: make a result of each window first, as count() does",
    ("Flow", "map"): "map is a verb of Stream: call source first",
    ("Flow", "window"): "window is a verb of KeyedStream: call source and key_by first",
    ("Flow", "aggregate"): "aggregate is a verb of Windows: call source, key_by and window first",
    ("Flow", "run"): "call ms.run(flow)",
}
NOWHERE = [("Stream", "colour"), ("KeyedStream", "_step_"), ("Windows", "__fspath__"), ("Flow", "colour")]


def objects() -> dict[str, object]:
    flow = ms.Flow("places")
    stream = flow.source("in", testing.items([1]))
    keyed = stream.key_by(str)
    windows = keyed.window("threes", ms.windows.count(3))
    late = keyed.window("twos", ms.windows.count(2)).count()
    return {"Flow": flow, "Stream": stream, "KeyedStream": keyed, "Windows": windows, "LateStream": late}


@pytest.mark.parametrize(("kind", "verb"), PLACES)
def test_a_misplaced_verb_names_its_place(kind: str, verb: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(objects()[kind], verb)
    assert str(raised.value) == f"'{kind}' object has no attribute '{verb}': {PLACES[kind, verb]}"
    assert raised.value.name == verb and type(raised.value.obj).__name__ == kind


@pytest.mark.parametrize(("kind", "verb"), NOWHERE)
def test_what_is_no_verb_at_all_is_as_in_any_class(kind: str, verb: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(objects()[kind], verb)
    assert str(raised.value) == f"'{kind}' object has no attribute '{verb}'"


def test_every_verb_says_something_everywhere() -> None:
    """A verb that is added to one kind of stream is known on the others."""
    made = objects()
    kinds = [ms.Stream, ms.KeyedStream, ms.Windows]
    verbs = {verb for kind in kinds for verb in dir(kind) if not verb.startswith("_")}
    assert len(verbs) > 30
    for verb in verbs:
        for one in made.values():
            if hasattr(one, verb):
                continue
            with pytest.raises(AttributeError, match=rf"attribute '{verb}': {verb} is a verb of \w+: "):
                getattr(one, verb)


def test_hasattr_and_copies_work_as_ever() -> None:
    made = objects()
    assert not hasattr(made["KeyedStream"], "event_time") and hasattr(made["Stream"], "event_time")
    assert getattr(made["Stream"], "window", None) is None
    assert isinstance(copy.copy(made["Stream"]), ms.Stream)
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(made["Stream"])
