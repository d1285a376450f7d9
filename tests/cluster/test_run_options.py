"""The options of ``millstream run`` for several processes: each wrong use is named."""

from __future__ import annotations

from pathlib import Path

import millstream as ms
import pytest
from shapes import command
from supervised import Supervised

WRONG = [
    (["--processes", "0"], "--processes is a number from 1 to 64, not 0"),
    (["--process", "0"], "--process needs --hosts"),
    (["--hosts", "a:1,b:1"], "--hosts needs --process"),
    (["--secret-file", "x"], "--secret-file needs --process"),
    (["--restarts", "1/1m"], "--restarts needs --processes or --process"),
    (["--process", "2", "--hosts", "a:1,b:1"], "--process 2: --hosts names the processes 0 to 1"),
    (["--process", "x", "--hosts", "a:1,b:1"], "--process is a number from 0, or auto, not 'x'"),
    (["--process", "0", "--hosts", "a:1,a:1"], "--hosts names a:1 twice"),
    (["--process", "0", "--hosts", "a:1,b"], "'b' is no address like orders-0.example:7700"),
    (["--process", "0", "--hosts", "missing"], "--hosts missing: no such file"),
    (
        ["--process", "0", "--hosts", "a:1,b:1", "--processes", "3"],
        "--hosts names 2 processes, --processes 3",
    ),
    (["--process", "0", "--hosts", "dns:words:7700"], "--hosts dns:NAME:PORT needs --processes N"),
    (
        ["--process", "0", "--hosts", "a:1,b:1", "--tls-ca", "ca.pem"],
        "tls_cert, tls_key and tls_ca come together",
    ),
    (["--processes", "2", "--restarts", "10"], "'10' is no number of deaths in a time like 10/10m"),
    (["--processes", "2", "--dead-after", "soon"], "'soon' is no length of time like 1s or 100ms"),
    (["--processes", "2", "--replay", "x=y"], "--replay runs on one process"),
]


@pytest.mark.parametrize(
    ("options", "message"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_wrong_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text("")
    text = Supervised(command(flow, *options)).end(2)
    assert message in text and len(text.splitlines()) == 1


def test_hosts_from_a_file(tmp_path: Path) -> None:
    from millstream._run.hosts import read_hosts

    hosts = tmp_path / "hosts"
    hosts.write_text("# the machines\na.example:7700\n\n[::1]:7700  # here\n")
    assert read_hosts(str(hosts), 2, "a") == ["a.example:7700", "[::1]:7700"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, ["a:1", "b:1"]), "process is a number from 0 to 1 for 2 hosts, not 2"),
        ((0, "a:1"), "hosts is a list of texts, not 'a:1'"),
    ],
)
def test_wrong_arguments_of_a_cluster_are_named(arguments: tuple[int, list[str]], message: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=message):
        ms.Cluster(*arguments)


COUNTS = """
import millstream as ms
flow = ms.Flow("misspelt")
numbers = flow.source("numbers", ms.testing.items(range(9))).key_by(lambda n: n % 5)
numbers.count("each", name="counts").items().sink("out", ms.testing.discard())
"""


def test_a_misspelt_name_to_drop_is_refused_by_all(tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(COUNTS)
    options = ("--processes", "2", "--state", str(tmp_path / "state"))
    Supervised(command(flow, *options)).end(0)
    text = Supervised(command(flow, *options, "--drop-state", "cuonts")).end(2)
    assert '--drop-state "cuonts": no process has anything of that name; did you mean "counts"?' in text, text
    Supervised(command(flow, *options, "--drop-state", "counts")).end(0)
