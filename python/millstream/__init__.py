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

TYPE_CHECKING = False
if TYPE_CHECKING:
    __version__: str
    from . import (
        clickhouse as clickhouse,
        errors as errors,
        files as files,
        http as http,
        journals as journals,
        kafka as kafka,
        mqtt as mqtt,
        nats as nats,
        objects as objects,
        postgres as postgres,
        queues as queues,
        rabbitmq as rabbitmq,
        redis as redis,
        service as service,
        sqlite as sqlite,
        tcp as tcp,
        testing as testing,
        windows as windows,
    )
    from ._connectors.adapter import (
        At as At,
        Dedupe as Dedupe,
        SourceFunction as SourceFunction,
        report_lag as report_lag,
        source as source,
    )
    from ._connectors.io import (
        Sink as Sink,
        Source as Source,
        generate as generate,
        stdout as stdout,
    )
    from ._connectors.outbox import (
        OutboxIdentity as OutboxIdentity,
        OutboxSink as OutboxSink,
        sink as sink,
    )
    from ._connectors.servers import (
        Login as Login,
    )
    from ._errors.flow import (
        DeadLetter as DeadLetter,
        FlowError as FlowError,
        FlowUsageError as FlowUsageError,
        FutureTimeError as FutureTimeError,
        MemberLostError as MemberLostError,
        Refused as Refused,
        RetryLater as RetryLater,
        ServiceError as ServiceError,
        SimulatedCrash as SimulatedCrash,
        StepError as StepError,
        dead_letter as dead_letter,
    )
    from ._errors.journal import (
        JournalBusyError as JournalBusyError,
        JournalClosedError as JournalClosedError,
        JournalDamageError as JournalDamageError,
        JournalError as JournalError,
        JournalExistsError as JournalExistsError,
        JournalForkedError as JournalForkedError,
        JournalFullError as JournalFullError,
        JournalIOError as JournalIOError,
        JournalNotFoundError as JournalNotFoundError,
        JournalPermissionError as JournalPermissionError,
        JournalPoisonedError as JournalPoisonedError,
        JournalReadOnlyError as JournalReadOnlyError,
        JournalSupersededError as JournalSupersededError,
        JournalUsageError as JournalUsageError,
        JournalVersionError as JournalVersionError,
        NotAJournalError as NotAJournalError,
        RecordLostError as RecordLostError,
        RecordNotFollowedError as RecordNotFollowedError,
        RecordNotYetError as RecordNotYetError,
        RecordPrunedError as RecordPrunedError,
        RecordTooLargeError as RecordTooLargeError,
    )
    from ._errors.queue import (
        QueueDamageError as QueueDamageError,
        QueueError as QueueError,
        QueueFullError as QueueFullError,
        QueueIOError as QueueIOError,
        QueueItemReturnedError as QueueItemReturnedError,
        QueueItemTooLargeError as QueueItemTooLargeError,
        QueuesBusyError as QueuesBusyError,
        QueuesClosedError as QueuesClosedError,
        QueuesForkedError as QueuesForkedError,
        QueueUsageError as QueueUsageError,
    )
    from ._millstream import (
        Counter as Counter,
        Gauge as Gauge,
        ItemOrigin as ItemOrigin,
        JournalCursor as JournalCursor,
        JournalReader as JournalReader,
        JournalRecord as JournalRecord,
        KeyContext as KeyContext,
        OpenItem as OpenItem,
        Report as Report,
        SourceIo as SourceIo,
    )
    from ._run.cluster import (
        Cluster as Cluster,
    )
    from ._run.notebook import (
        show as show,
    )
    from ._run.replica import (
        Replica as Replica,
    )
    from ._run.run import (
        run as run,
    )
    from ._stores.journal import (
        Journal as Journal,
    )
    from ._stores.queue import (
        Queue as Queue,
        Queues as Queues,
    )
    from ._streams.agg import (
        Aggregate as Aggregate,
        count as count,
        distinct as distinct,
        first as first,
        last as last,
        max as max,
        mean as mean,
        min as min,
        quantile as quantile,
        sum as sum,
        top as top,
    )
    from ._streams.flow import (
        Flow as Flow,
    )
    from ._streams.streams import (
        KeyedStream as KeyedStream,
        LateStream as LateStream,
        Stream as Stream,
        Windows as Windows,
    )
    from ._values.backoff import (
        Backoff as Backoff,
    )
    from ._values.clocks import (
        Clock as Clock,
    )
    from ._values.record import (
        Record as Record,
    )
    from ._values.user_metrics import (
        counter as counter,
        gauge as gauge,
    )
    from .service import (
        ask as ask,
        call as call,
        publisher as publisher,
        serve as serve,
    )

_MODULES = """
    clickhouse errors files http journals kafka mqtt nats objects postgres queues rabbitmq redis service
    sqlite tcp testing windows
"""
"""Public modules, such as `ms.kafka`."""

_NAMES = {
    "_connectors.adapter": "At Dedupe SourceFunction report_lag source",
    "_streams.agg": """
        Aggregate count distinct first last mean quantile top max min sum
    """,
    "_values.backoff": "Backoff",
    "_values.clocks": "Clock",
    "_run.cluster": "Cluster",
    "_errors.flow": """
        DeadLetter FlowError FlowUsageError FutureTimeError MemberLostError Refused RetryLater
        ServiceError SimulatedCrash StepError dead_letter
    """,
    "_connectors.io": "Sink Source generate stdout",
    "_errors.journal": """
        JournalBusyError JournalClosedError JournalDamageError JournalError JournalExistsError
        JournalForkedError JournalFullError JournalIOError JournalNotFoundError JournalPermissionError
        JournalPoisonedError JournalReadOnlyError JournalSupersededError JournalUsageError
        JournalVersionError NotAJournalError RecordLostError RecordNotFollowedError RecordNotYetError
        RecordPrunedError RecordTooLargeError
    """,
    "_stores.journal": "Journal",
    "_millstream": """
        Counter Gauge ItemOrigin JournalCursor JournalReader JournalRecord KeyContext OpenItem Report
        SourceIo
    """,
    "_connectors.outbox": "OutboxIdentity OutboxSink sink",
    "_errors.queue": """
        QueueDamageError QueueError QueueFullError QueueIOError QueueItemReturnedError
        QueueItemTooLargeError QueuesBusyError QueuesClosedError QueuesForkedError QueueUsageError
    """,
    "_stores.queue": "Queue Queues",
    "_values.record": "Record",
    "_run.notebook": "show",
    "_run.replica": "Replica",
    "_run.run": "run",
    "_connectors.servers": "Login",
    "_streams.flow": "Flow",
    "_streams.streams": "KeyedStream LateStream Stream Windows",
    "_values.user_metrics": "counter gauge",
    "service": "ask call publisher serve",
}
"""The other public names, by the module that defines each. A module is loaded when a program first names one
of its names: an import of millstream costs what is used of it."""

_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
_LOADED = {*_HOME, *_MODULES.split()}

# A star import leaves builtins alone.
__all__ = sorted(_LOADED - {"max", "min", "sum"})


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("millstream")
    if name not in _LOADED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _HOME.get(name)
    module = import_module(f"{__name__}.{home or name}")
    found: object = getattr(module, name) if home else module
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOADED})
