"""Every example of docs/memcache.md is typed, as with `nc`, into a real server, and the answers are compared.

A block marked `nc` is a conversation on connections of its own: `> ` or `A> ` is typed, anything else or
`A< ` is expected. `*` stands for any text, `...` for any lines. A second word names the server: `kestrel`,
`auth`.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from documents import GUIDE, ROOT, blocks as blocks_of
from queue_server import Line, Serve

DOCUMENT = ROOT / "docs" / "memcache.md"
BLOCK = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = """set get gets delete flush flush_all flush_expired flush_all_expired stats dump_stats version
    verbosity status reload shutdown monitor confirm redrive quit mn""".split()


def blocks(kind: str) -> Iterator[tuple[str | None, int, str]]:
    """Second word, line, and text of each block of this kind."""
    text = DOCUMENT.read_text()
    for block in BLOCK.finditer(text):
        if block[1] == kind:
            yield block[2], text.count("\n", 0, block.start()) + 2, block[3]


class Conversation:
    """Types and compares, on as many connections as the block names."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: dict[str, Line] = {}
        self.skipping = False
        self.has_quit = False

    def line(self, who: str) -> Line:
        if who not in self.lines:
            self.lines[who] = Line(self.port)
        return self.lines[who]

    def play(self, text: str) -> None:
        step = re.match(r"([A-Z]?)([<>])(?: |$)(.*)", text)
        if step and step[2] == ">":
            self.line(step[1]).send(step[3].encode() + b"\n")
            self.has_quit = step[3] == "quit"
        elif text == "...":
            self.skipping = True
        else:
            self.expect(*(step[1], step[3]) if step else ("", text))

    def expect(self, who: str, text: str) -> None:
        pattern = ".*".join(map(re.escape, text.split("*")))
        read = self.line(who).file.readline
        heard = read()
        while self.skipping and heard and not re.fullmatch(pattern, heard.decode().rstrip("\r\n")):
            heard = read()
        self.skipping = False
        assert re.fullmatch(pattern, heard.decode().rstrip("\r\n")), f"{heard!r} instead of {text!r}"

    def end(self) -> None:
        """The server sent no bytes that the document does not show."""
        for line in self.lines.values():
            if self.has_quit:
                assert line.file.read() == b""
            else:
                assert line.ask(b"mn") == b"MN"
            line.close()


def play(port: int, first_line: int, text: str) -> None:
    conversation = Conversation(port)
    for number, line in enumerate(text.splitlines(), first_line):
        try:
            conversation.play(line)
        except AssertionError as error:
            raise AssertionError(f"docs/memcache.md:{number}: {error}") from error
    conversation.end()


def test_every_example_is_true(serve: Serve, free_port: Callable[[], int], tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("anna:secret\n")
    config = "\n".join(text for _, _, text in blocks("toml"))
    kestrel_port = free_port()
    ports = {
        None: serve(f"--listen-kestrel=127.0.0.1:{kestrel_port}", config=config).port,
        "kestrel": kestrel_port,
        "auth": serve(f"--auth-file={names}").port,
    }
    for server, line, text in blocks("nc"):
        play(ports[server], line, text)


@pytest.mark.parametrize(
    "config",
    [*blocks_of(GUIDE / "queues.md", "toml"), *blocks_of(GUIDE / "running-queues.md", "toml")],
    ids=("jobs", "configuration"),
)
def test_a_configuration_of_the_guide_is_accepted(config: str, serve: Serve) -> None:
    play(serve(config=config).port, 1, "> set orders 0 0 5\n> hello\nSTORED\n> get orders/open\n...\nEND\n")


def test_every_command_has_an_example() -> None:
    typed = {
        line.split("> ", 1)[1].split()[0]
        for _, _, text in blocks("nc")
        for line in text.splitlines()
        if "> " in line
    }
    assert not set(COMMANDS) - typed


@pytest.mark.parametrize(
    "wrong", ["> get q\nVALUE *\n", "> version\n", "> version\nVERSION 9.\n", "> quit\nMN\n"]
)
def test_an_answer_that_is_not_true_is_found(wrong: str, serve: Serve) -> None:
    with pytest.raises(AssertionError):
        play(serve("--sync=never").port, 1, wrong)
