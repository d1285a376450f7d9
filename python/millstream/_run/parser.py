"""The parser of a command line, made of descriptions of options."""

from __future__ import annotations

import argparse

from .._errors.command import UsageError
from .options import length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn

    from .option import Option


HIDDEN = "-"
"""The heading of options that the help does not show."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions.

    Args:
        prog: the program and its verb.
        description: what it does.
        epilog: an example.
        more: further arguments of ``argparse.ArgumentParser``.

    Raises:
        UsageError: arguments do not fit.
    """

    def __init__(self, prog: str, description: str, epilog: str, **more: Any) -> None:
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False, **more)
        self.worded: list[Option] = []

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def add_options(self, options: Iterable[Option]) -> None:
        """Adds options under their headings; those of Python alone are left out."""
        groups: dict[str, Any] = {}
        for each in options:
            if each.flags != ():
                group = groups.get(each.group) or self.add_argument_group(each.group)
                groups[each.group] = group
                add_option(group, each)
                self.worded += [each] if each.words else []

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses arguments; words of values become these values."""
        found, more = super().parse_known_args(args, namespace)
        for each in self.worded:
            setattr(found, each.name, each.words[getattr(found, each.name)])
        return found, more

    def meant(self, argument: str) -> str:
        """The part of the error of an unknown option that names the known one which it resembles."""
        import re
        from difflib import get_close_matches

        known = re.findall(r"--[a-z-]+", self.format_usage())
        near = get_close_matches(argument.partition("=")[0], known, n=1, cutoff=0.7)
        return f"; did you mean {near[0]}?" if near else ""


def add_option(to: argparse._ActionsContainer, each: Option, shown: str | None = None) -> None:
    """Adds an option; ``shown`` stands for "the flow" in its help."""
    text = each.shown or each.help
    if shown is not None:
        text = text.replace("the flow", shown)
    if (default := default_of(each)) and "(default" not in text:
        text += f" (default {default})"
    parts: dict[str, Any] = {
        "dest": each.name,
        "help": argparse.SUPPRESS if each.group == HIDDEN else text.replace("%", "%%"),
    }
    if not each.has_value:
        parts["action"] = "store_true"
    elif each.words:
        parts |= {"choices": list(each.words), "default": default}
    elif each.repeats:
        parts |= {"action": "append", "default": [], "type": each.read, "metavar": each.metavar}
    else:
        parts |= {"default": each.default, "type": each.read, "metavar": each.metavar}
    to.add_argument(*(each.flags or (each.flag,)), **parts)


def default_of(each: Option) -> str:
    """The default, as the command line has it; empty where there is none."""
    for word, value in each.words.items():
        if value == each.default:
            return word
    if each.default in (None, False, (), []):
        return ""
    return f"{each.default:g}s" if each.read is length else str(each.default)
