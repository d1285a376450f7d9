"""A flow in a notebook: its live page below the cell."""

from __future__ import annotations

import secrets
import sys

from .._errors.flow import FlowUsageError
from .._streams.flow import Flow
from .cells import in_notebook, remember, replace
from .option import takes
from .options import RunOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .running import Running


@takes(RunOptions)
def show(flow: Flow, options: RunOptions) -> Running:
    """Starts a flow and shows its page below the cell of a notebook: its graph and its figures, live, with a
    button that stops it.

    A flow of the same name that a cell has started before is stopped first: a cell may be run again. The page
    is at an address of this machine, which the browser of the notebook must reach, with a token of its own.
    Outside a notebook its address is printed.

    Args:
        flow: the flow.

    Returns:
        The running flow, which can be stopped and waited for.

    Raises:
        FlowUsageError: an option is out of range, or the flow has a mistake.

    Example:
        >>> import millstream as ms
        >>> flow = ms.Flow("ticks")
        >>> ticks = flow.source("ticks", ms.generate(lambda: iter(int, 1), rate=1000))
        >>> ticks.sink("out", ms.testing.discard())
        >>> running = ms.show(flow)
        >>> running.address.startswith("127.0.0.1:")
        True
        >>> running.stop()
        >>> _ = running.wait()
    """
    from .running import start

    if not isinstance(flow, Flow):
        raise FlowUsageError(f"show takes a Flow, not {flow!r}")
    replace(flow.name)
    address = options.http or "127.0.0.1:0"
    token = options.http_token or secrets.token_urlsafe()
    running = start(flow, options.but(http=address, http_token=token), framed=True)
    remember(flow.name, running)
    if in_notebook():
        from IPython.display import display

        display(running)  # type: ignore[no-untyped-call]
    else:
        print(f"page: {running.page}", file=sys.stderr)
    return running
