"""Durable, microsecond event processing.

>>> import millstream as ms
>>> flow = ms.Flow("word-count")
>>> counts = ms.testing.collect()
>>> (flow.source("lines", ms.testing.items(["to be", "or not to be"]))
...      .flat_map(str.split)
...      .key_by(str.lower)
...      .count()
...      .sink("out", counts))
>>> report = ms.run(flow)
>>> counts
[('to', 2), ('be', 2), ('or', 1), ('not', 1)]
"""

from . import files, http, journals, kafka, objects, postgres, queues, service, sqlite, tcp, testing, windows
from ._adapter import At, Dedupe, SourceFunction, report_lag, source
from ._agg import Aggregate, count, distinct, first, last, mean, quantile, top

# Names of builtins, which a star import leaves alone: they are not in `__all__`.
from ._agg import max as max
from ._agg import min as min
from ._agg import sum as sum
from ._backoff import Backoff
from ._clocks import Clock
from ._cluster import Cluster
from ._errors import (
    DeadLetter,
    FlowError,
    FlowUsageError,
    FutureTimeError,
    MemberLostError,
    Refused,
    RetryLater,
    ServiceError,
    SimulatedCrash,
    StepError,
    dead_letter,
)
from ._io import Sink, Source, generate, stdout
from ._journal_errors import (
    JournalBusyError,
    JournalClosedError,
    JournalDamageError,
    JournalError,
    JournalExistsError,
    JournalForkedError,
    JournalFullError,
    JournalIOError,
    JournalNotFoundError,
    JournalPermissionError,
    JournalPoisonedError,
    JournalReadOnlyError,
    JournalSupersededError,
    JournalUsageError,
    JournalVersionError,
    NotAJournalError,
    RecordLostError,
    RecordNotFollowedError,
    RecordNotYetError,
    RecordPrunedError,
    RecordTooLargeError,
)
from ._journal_store import Journal
from ._millstream import (
    Counter,
    Gauge,
    ItemOrigin,
    JournalCursor,
    JournalReader,
    JournalRecord,
    KeyContext,
    OpenItem,
    Report,
    SourceIo,
)
from ._outbox import OutboxIdentity, OutboxSink, sink
from ._queue_errors import (
    QueueDamageError,
    QueueError,
    QueueFullError,
    QueueIOError,
    QueueItemReturnedError,
    QueueItemTooLargeError,
    QueuesBusyError,
    QueuesClosedError,
    QueuesForkedError,
    QueueUsageError,
)
from ._queue_store import Queue, Queues
from ._record import Record
from ._replica import Replica
from ._run import run
from ._servers import Login
from ._streams.flow import Flow
from ._streams.streams import KeyedStream, LateStream, Stream, Windows
from ._user_metrics import counter, gauge
from .service import ask, call, publisher, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import clickhouse as clickhouse
    from . import mqtt as mqtt
    from . import nats as nats
    from . import rabbitmq as rabbitmq
    from . import redis as redis

__all__ = [
    "Aggregate",
    "At",
    "Backoff",
    "Clock",
    "Cluster",
    "Counter",
    "DeadLetter",
    "Dedupe",
    "Flow",
    "FlowError",
    "FlowUsageError",
    "FutureTimeError",
    "Gauge",
    "ItemOrigin",
    "Journal",
    "JournalBusyError",
    "JournalClosedError",
    "JournalCursor",
    "JournalDamageError",
    "JournalError",
    "JournalExistsError",
    "JournalForkedError",
    "JournalFullError",
    "JournalIOError",
    "JournalNotFoundError",
    "JournalPermissionError",
    "JournalPoisonedError",
    "JournalReadOnlyError",
    "JournalSupersededError",
    "JournalReader",
    "JournalRecord",
    "JournalUsageError",
    "JournalVersionError",
    "KeyContext",
    "KeyedStream",
    "LateStream",
    "Login",
    "MemberLostError",
    "NotAJournalError",
    "OpenItem",
    "OutboxIdentity",
    "OutboxSink",
    "Queue",
    "QueueDamageError",
    "QueueError",
    "QueueFullError",
    "QueueIOError",
    "QueueItemReturnedError",
    "QueueItemTooLargeError",
    "QueueUsageError",
    "Queues",
    "QueuesBusyError",
    "QueuesClosedError",
    "QueuesForkedError",
    "Record",
    "RecordLostError",
    "RecordNotFollowedError",
    "RecordNotYetError",
    "RecordPrunedError",
    "RecordTooLargeError",
    "Replica",
    "Report",
    "Refused",
    "RetryLater",
    "ServiceError",
    "SimulatedCrash",
    "Sink",
    "Source",
    "SourceFunction",
    "SourceIo",
    "StepError",
    "Stream",
    "Windows",
    "ask",
    "call",
    "clickhouse",
    "count",
    "counter",
    "dead_letter",
    "distinct",
    "files",
    "first",
    "gauge",
    "generate",
    "http",
    "journals",
    "kafka",
    "last",
    "mean",
    "mqtt",
    "nats",
    "objects",
    "postgres",
    "publisher",
    "quantile",
    "queues",
    "rabbitmq",
    "redis",
    "report_lag",
    "run",
    "serve",
    "service",
    "sink",
    "source",
    "sqlite",
    "stdout",
    "tcp",
    "testing",
    "top",
    "windows",
]

_WITH_A_CLIENT = ("clickhouse", "mqtt", "nats", "rabbitmq", "redis")
"""Connectors whose modules need asyncio: each is imported when a program names it."""


def __getattr__(name: str) -> object:
    if name in _WITH_A_CLIENT:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
