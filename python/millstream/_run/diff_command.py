"""``millstream diff A.py B.py --replay ...``."""

from __future__ import annotations

from .._errors.command import UsageError, failed, report_error
from .arguments import CommandOptions
from .flow_file import load
from .parser import Parser
from .replay_command import recorded


def parser() -> Parser:
    """The parser of ``millstream diff``."""
    made = Parser(
        prog="millstream diff",
        description="Replay recorded input through two flows, and tell which outputs differ.",
        epilog="example: millstream diff old.py new.py --replay state/ --from 1h",
    )
    for name in "flow_a", "flow_b":
        made.add_argument(name, metavar=f"{name.upper()}.py[:NAME]", help="the file of a flow")
    made.add_options(CommandOptions.ALL[name] for name in ("replay", "begin", "end"))
    made.add_argument("--json", action="store_true", help="report as JSON")
    return made


def diff_files(arguments: list[str]) -> int:
    """The verb ``diff``: 0 when all outputs are the same, 1 when they differ or it fails, 2 for bad use."""
    try:
        options = parser().parse_args(arguments)
        if not options.replay:
            raise UsageError("--replay says which recorded input to compare the flows on")
        where = recorded(options.replay)
    except UsageError as error:
        return report_error(f"{error} (see millstream diff --help)", 2, "diff")
    from .replay import diff

    file = options.flow_a
    try:
        flow_a = load(file)
        file = options.flow_b
        flow_b = load(file)
        file = f"{options.flow_a} and {options.flow_b}"
        found = diff(flow_a, flow_b, where, start=options.begin, end=options.end)
    except UsageError as error:
        return report_error(str(error), 2, "diff")
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return failed(error, file, "diff")
    found.names = options.flow_a, options.flow_b
    print(found.to_json() if options.json else found)
    return 1 if found else 0
