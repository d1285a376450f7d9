"""The flow of ``millstream-bench http --python``: requests to a journal.

Run::

    millstream-bench http --python --pin

The program starts this module with the state directory, the journal and ``always`` or ``never``. It puts the
load on the address that the module prints, ends it by SIGTERM, and reads the journal.
"""

from __future__ import annotations

import sys

from millstream import Flow, http, journals, run

__all__ = ["serve"]


def bound(address: str) -> None:
    print(f"listening on {address}", file=sys.stderr, flush=True)


def serve(state: str, journal: str, sync: bool) -> None:
    """Runs the flow until SIGTERM. Items are the text of lines of JSON."""
    flow = Flow("bench")
    source = http.listen("127.0.0.1:0", decode=bytes, on_bound=bound)
    flow.source("requests", source).sink("out", journals.append(journal))
    run(flow, state=state, sync=sync)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3] == "always")
