"""The linter of prose finds what each of its rules is for, only in prose, and on the right line."""

from pathlib import Path

import prose
import pytest

# Text that each rule must object to, in the order of the rules. Code is not prose: hence the strings.
BAD = [
    ["The reader waits behind the writer.", "what comes Behind it"],
    ["a step in front of the sink"],
    ["Who waits longest is served first.", "whoever has the lock", "the process whom it wakes"],
    ["Nobody has it open.", "somebody holds the lock", "it wakes everybody", "if anybody reads"],
    ["The reader is told of the end.", "a caller is told"],
    ["It hears of the newer term.", "until it heard of it"],
    ["The list tells of these only."],
    ["what lies in the journal", "what stands there", "the record lies after it", "the file lay there"],
    ["It takes back the records.", "the batch is taken back", "It goes back to the epoch."],
    ["It cuts off the end.", "the torn end is cut off"],
    ["The state comes right.", "until all came right"],
    ["It goes on from the epoch.", "the run went on where it ended", "It goes on\nfrom there."],
    ["how far it has come", "how far the reader is"],
    ["It gave up on the peer."],
    ["It hands over the batch.", "the batch is handed on", "Handing back the lock"],
    ["What is to be done", "the records are to be synced", "A lock is to be had."],
    ["The record is passed over."],
    ["The reader looks away.", "the thread stays awake", "to stay awake"],
    ["which makes void all others", "older states are void"],
    ["kept for as long as it is needed"],
    ["calls to the outside"],
    ["measured in a good hour", "in quiet hours"],
    ["nothing came of it", "what comes of it"],
    ["Bytes of a stranger"],
    ["run as it stands", "The text is used as they stand."],
    ["What the system said", "as is said there"],
    ["It gives back the room.", "It gave back the lock."],
    ["closed for want of space", "it ends in good order"],
]
assert len(BAD) == len(prose.RULES)


@pytest.mark.parametrize(("rule", "texts"), list(zip(prose.RULES, BAD, strict=True)))
def test_each_rule_finds_what_it_is_for(rule: prose.Rule, texts: list[str]) -> None:
    for text in texts:
        (fault,) = [line for line in prose.faults("a.md", text) if rule.instead in line]
        assert fault.startswith("a.md:1: ")


@pytest.mark.parametrize(
    "text",
    [
        "The follower is 30 records behind its leader.",
        "A server behind a proxy",
        "How far behind is it?",
        "`behind` and [a link](behind.md) and https://x.org/behind",
        "```\nbehind\n```\nafter",
        "behind_the_scenes, a hind, beforehand, overlay",
        "a disk that lies about its syncs",
        "people who write operators",
    ],
)
def test_other_uses_are_left_alone(text: str) -> None:
    assert not list(prose.faults("a.md", text))


def test_a_fault_names_file_line_words_and_replacement() -> None:
    assert list(prose.faults("docs/a.md", "One.\n\nTwo behind three.\n")) == [
        'docs/a.md:3: "behind": say "after"'
    ]


RUST = """//! A module: what is behind it.
fn behind() -> &'static str {
    // It goes on
    // from here. `behind` is code.
    "in front of" // whom
}
/* behind */
/// ```
/// let behind = 1;
/// ```
/// after
struct Behind;
"""


def test_rust_is_read_in_its_comments_only() -> None:
    found = [(line.split(":")[1], line.split('"')[1]) for line in prose.faults("a.rs", RUST)]
    assert found == [("1", "behind"), ("3", "goes on from"), ("5", "whom"), ("7", "behind")]


PYTHON = '''"""A module.

Behind it."""
text = "behind"  # It is told.


def behind():
    """Runs over.
    ```
    behind
    ```
    To whom?
    """
    return """behind"""
'''


def test_python_is_read_in_its_comments_and_docstrings_only() -> None:
    found = [(line.split(":")[1], line.split('"')[1]) for line in prose.faults("a.py", PYTHON)]
    assert found == [("3", "Behind"), ("4", "told"), ("12", "whom")]


def test_comments_of_two_places_are_not_joined() -> None:
    assert not list(prose.faults("a.rs", "// It is\nlet a = 1;\n// to be seen\n"))


def test_each_checked_path_has_files() -> None:
    for path in prose.CHECKED:
        assert list(prose.files([path])), path


def test_the_program_fails_where_there_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    for name, text in {
        "docs/a.md": "After.\n",
        "docs/target/a.md": "Behind.\n",
        "b.rs": "// behind\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert prose.main(["docs"]) == 0
    assert prose.main(["no-such-path"]) == 1
    assert prose.main(["docs", "b.rs"]) == 1
    assert 'b.rs:1: "behind": say "after"\n2 files, 1 words to replace' in capsys.readouterr().out
