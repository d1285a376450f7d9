"""Generator functions as sources: ``ms.source``, ``ms.At``, ``ms.Dedupe`` and ``ms.report_lag``.

Generators run outside of the workers: asynchronous ones on one event loop thread of the process, others on a
thread each. Items pass through a bounded buffer to the worker, which is woken and never polls.
"""

from .declare import SourceFunction, source
from .dedupe import Dedupe
from .item import At
from .lag import report_lag

__all__ = ["At", "Dedupe", "SourceFunction", "report_lag", "source"]
