"""The verbs that are Python with their options, as JSON: ``python -m millstream._run.described``.

The native program makes completions and man pages of them, beside those of its own verbs.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from typing import Any

PARSERS = {
    "run": "_run.arguments",
    "redrive": "_run.redrive_command",
    "demo": "_demo.command",
    "diff": "_run.diff_command",
    "new": "_new.command",
    "service": "_service.command",
}
"""The modules whose function ``parser`` makes the parser of a verb."""


def described() -> list[dict[str, Any]]:
    """All verbs that are Python."""
    package = __package__.partition(".")[0]
    return [verb(name, import_module(f"{package}.{home}").parser()) for name, home in PARSERS.items()]


def verb(name: str, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """A verb: what it does, its arguments, and the verbs below it."""
    arguments = []
    verbs = []
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                verbs += [verb(below, its) for below, its in action.choices.items()]
            elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                arguments.append(argument(parser, group.title or "", action))
    return {
        "name": name,
        "about": parser.description or "",
        "example": parser.epilog or "",
        "arguments": arguments,
        "verbs": verbs,
    }


def argument(parser: argparse.ArgumentParser, heading: str, action: argparse.Action) -> dict[str, Any]:
    """An option, or an argument without flags; ``value`` names what follows a flag, if something does."""
    named = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return {
        "name": action.dest,
        "flags": list(action.option_strings),
        "value": None if action.nargs == 0 else named,
        "words": [str(word) for word in action.choices or ()],
        "help": parser._get_formatter()._expand_help(action) if action.help else "",
        "heading": heading if action.option_strings and heading != "options" else "",
        "required": action.required and action.nargs != "?",
        "optional_value": action.nargs == "?",
        "repeats": action.nargs == "+" or isinstance(action, argparse._AppendAction),
    }


if __name__ == "__main__":
    print(json.dumps(described()))
