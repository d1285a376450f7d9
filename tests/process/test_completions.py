"""Completions in real shells, and man pages: of the verbs of both languages, from their one definition."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from millstream.__main__ import VERBS
from millstream._run.described import PARSERS, described

ASKED = [
    ("", {"run", "redrive", "queue", "completions", "doctor"}),
    ("run --wor", {"--workers"}),
    ("run --sync ", {"always", "never"}),
    ("redrive --sta", {"--state"}),
    ("demo --sec", {"--seconds"}),
    ("diff --rep", {"--replay"}),
    ("new ", {"alerts", "queue", "service"}),
    ("service ", {"run", "up", "down", "status", "gateway", "test", "replay", "diff", "export", "history"}),
    ("service up --log", {"--log", "--log-level"}),
    ("service run --wait ", {"block", "back-off", "spin"}),
    ("queue serve --lis", {"--listen"}),
]

BASH = """
source "$1"; shift
COMP_WORDS=(millstream "$@"); COMP_CWORD=$#; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
function=$(complete -p millstream | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function millstream "${@: -1}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
fpath=("$1" $fpath)
autoload -Uz compinit && compinit -u -D
autoload +X -Uz $_comps[millstream] || exit 1
# What the script would offer for a line is printed instead: by the functions that it calls.
_describe() { print -rl -- "${(@P)${@[-1]}}"; }
_arguments() { print -rl -- "$@"; }
for each in ${(k)functions[(I)_millstream*_commands]}; do $each; done
print -rl -- "$functions[_millstream]"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completions")
    for shell, name in (("bash", "millstream.bash"), ("zsh", "_millstream"), ("fish", "millstream.fish")):
        done = subprocess.run(
            ["millstream", "completions", shell], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        (folder / name).write_text(done.stdout)
    return folder


def in_bash(scripts: Path, line: str) -> set[str]:
    command = ["bash", "--norc", "-c", BASH, "bash", str(scripts / "millstream.bash"), *line.split(" ")]
    return set(subprocess.check_output(command, text=True).split())


def in_fish(scripts: Path, line: str) -> set[str]:
    text = f"source {scripts / 'millstream.fish'}; complete -C {json.dumps('millstream ' + line)}"
    said = subprocess.check_output(["fish", "--no-config", "-c", text], text=True)
    return {offered.partition("\t")[0] for offered in said.splitlines()}


SHELLS = {"bash": in_bash, "fish": in_fish}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_what_fits(shell: str, scripts: Path) -> None:
    assert shutil.which(shell), f"{shell} is missing: make setup"
    for line, expected in ASKED:
        if shell == "fish" and line == "new ":
            continue  # for fish clap_complete has no values of arguments without flags
        offered = SHELLS[shell](scripts, line)
        assert expected <= offered, (line, offered)


def test_zsh_loads_the_script_and_knows_all_verbs(scripts: Path) -> None:
    command = ["zsh", "-f", "-c", ZSH, "zsh", str(scripts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    for word in (
        "redrive:",
        "queue:",
        "--workers=",
        "--sync=",
        "(alerts queue service)",
        "gateway:",
        "--log=",
    ):
        assert word in done.stdout, word


def test_each_verb_of_python_is_described() -> None:
    assert set(PARSERS) == set(VERBS)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {
        flag
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for flag in action.option_strings
    }


def flags_of(verb: dict[str, Any]) -> set[str]:
    return {flag for argument in verb["arguments"] for flag in argument["flags"]} | {"-h", "--help"}


def test_a_description_has_each_option_and_no_hidden_one() -> None:
    for verb in described():
        parser = import_module(f"millstream.{PARSERS[verb['name']]}").parser()
        assert flags_of(verb) == options_of(parser), verb["name"]
    run = next(verb for verb in described() if verb["name"] == "run")
    assert not flags_of(run) & {"--supervised", "--restarted"}


def test_man_pages_are_of_all_verbs(tmp_path: Path) -> None:
    subprocess.run(["millstream", "man", str(tmp_path / "man1")], check=True)
    pages = {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()}
    for name in ("millstream", "millstream-run", "millstream-service-up", "millstream-queue-serve"):
        assert f"{name}.1" in pages
    run = pages["millstream-run.1"]
    assert "\\-\\-workers" in run and "millstream run word_count.py" in run
    assert "SEVERAL PROCESSES" in run.upper()


def test_the_program_without_python_completes_its_own_verbs(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "MILLSTREAM_PYTHON": "/no/python"}
    command = [shutil.which("millstream") or "", "completions", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "without the options of run, redrive, demo, diff, new, service: /no/python cannot" in done.stderr
    (tmp_path / "millstream.bash").write_text(done.stdout)
    assert {"run", "queue"} <= in_bash(tmp_path, "")
    assert in_bash(tmp_path, "queue serve --lis") == {"--listen", "--listen-kestrel"}


def test_an_unknown_shell_is_bad_usage() -> None:
    done = subprocess.run(["millstream", "completions", "tcsh"], capture_output=True, text=True)
    assert done.returncode == 2 and "bash, zsh, fish" in done.stderr
