"""Components and their publishers: classes that implement interfaces, and objects that publish calls."""

from __future__ import annotations

import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from .. import _millstream
from .._errors.flow import ServiceError
from .._millstream import Clock
from .calls import CALL
from .checks import check_callback, check_implements, hints_of
from .interfaces import described, is_interface, methods_of
from .timers import Timers, check_timers

T = TypeVar("T")
#: A class that is an interface. ``type[T]`` would not do: mypy refuses protocols and abstract classes for it.
InterfaceOf = Callable[..., T]


def proxy(interface: InterfaceOf[T], outlet: _millstream.Outlet) -> T:
    """An object that implements the interface by publishing."""
    namespace = {
        name: publishing(number, getattr(interface, name))
        for number, name in enumerate(methods_of(interface), 1)
    }
    made = type(f"{interface.__name__}Publisher", (), {"__slots__": ("_call", "_outlet"), **namespace})()
    made._call = outlet.call
    made._outlet = outlet
    return typing.cast(T, made)


def publishing(number: int, function: Callable[..., Any]) -> Callable[..., None]:
    """A method that publishes its call; arguments by name and defaults as the interface has them."""
    signature = inspect.signature(function)
    count = len(signature.parameters) - 1

    def complete(self: Any, arguments: tuple[Any, ...], **named: Any) -> tuple[Any, ...]:
        bound = signature.bind(self, *arguments, **named)
        bound.apply_defaults()
        return bound.args[1:]

    def publish(self: Any, *arguments: Any, **named: Any) -> None:
        if named or len(arguments) != count:
            arguments = complete(self, arguments, **named)
        self._call(number, arguments)

    setattr(publish, CALL, (number, complete))
    publish.__name__ = function.__name__
    publish.__doc__ = function.__doc__
    return publish


def interfaces_of(component: type) -> list[type]:
    """The interfaces of a component: the protocols and abstract classes that it derives from."""
    found = [base for base in component.__mro__[1:] if is_interface(base)]
    if not found:
        raise ServiceError(
            f"{component.__name__} derives from no interface (a Protocol or an abstract class)"
        )
    return found


def parameter_types(component: type) -> dict[str, type]:
    """What a component receives, by the annotations of its ``__init__``: publishers, clock, timers."""
    init = vars(component).get("__init__") or component.__init__  # type: ignore[misc]
    if init is object.__init__:
        return {}
    hints = hints_of(init, f"{component.__name__}.__init__")
    given: dict[str, type] = {}
    for parameter in inspect.signature(component).parameters.values():
        kind = hints.get(parameter.name)
        if kind in (Clock, Timers) or is_interface(kind):
            given[parameter.name] = typing.cast(type, kind)
        elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            where = f"{component.__name__}.__init__, {parameter.name}"
            raise ServiceError(f"{where}: is neither an interface, a Clock nor Timers, and has no default")
    return given


def made(
    component: type, outputs: _millstream.Service | _millstream.Recorder, clock: Callable[[], Any]
) -> Any:
    """A component with its publishers, which refuse calls of its constructor."""
    check_component(component)
    given = parameter_types(component)
    instance = component(**{name: given_to(kind, outputs.outlet, clock) for name, kind in given.items()})
    if isinstance(outputs, _millstream.Recorder):
        outputs.open()
    check_component(component, instance)
    return instance


def given_to(kind: type, outlet: Callable[[Any], Any], clock: Callable[[], Any]) -> object:
    """A clock, timers or a publisher for a component."""
    if kind is Clock:
        return clock()
    return Timers(clock()) if kind is Timers else proxy(kind, outlet(described(kind)))


def outputs_of(component: type) -> list[type]:
    """The interfaces through which a component calls."""
    kinds = parameter_types(component).values()
    return list(dict.fromkeys(kind for kind in kinds if kind not in (Clock, Timers)))


def check_component(component: type, instance: object | None = None) -> None:
    """Raises for a component that does not implement its interfaces.

    Without an instance only its class is checked.
    """
    for interface in interfaces_of(component):
        try:
            described(interface)
        except ServiceError as error:
            raise ServiceError(f"{component.__name__}: {error}") from error.__cause__
        for name in methods_of(interface):
            check_implements(component, instance, interface, name, is_interface)
    if instance is not None:
        check_timers(component.__name__, instance)


def bound(component: Any) -> list[tuple[_millstream.Interface, list[Any]]]:
    """The interfaces of a component, each with the component's own methods for it."""
    return [
        (described(interface), [getattr(component, name) for name in methods_of(interface)])
        for interface in interfaces_of(type(component))
    ]


def keeping(instance: Any) -> tuple[int, Callable[[], bytes], Callable[[bytes, int], str | None]]:
    """The version of the state of a component, and the functions that save it as bytes and restore it.

    The latter returns why a state cannot be read, if the component is as it was.
    """
    name = type(instance).__name__
    for method in ("snapshot", "restore"):
        if not callable(getattr(instance, method, None)):
            raise ServiceError(f"{name} has no {method}(), which rebuild='snapshot' needs")
    own = getattr(instance, "snapshot_version", 1)
    if isinstance(own, bool) or not isinstance(own, int) or own < 1:
        raise ServiceError(f"{name}: snapshot_version={own!r}: it is a number from 1 on")

    def restore(saved: bytes, version: int) -> str | None:
        try:
            state = pickle.loads(saved)
        except Exception as error:  # a class was renamed or removed, for example
            return f"{type(error).__name__}: {error}"
        if version != own:
            migrate = getattr(instance, "migrate", None)
            if not callable(migrate):
                return f"it has version {version}, and {name} has version {own} and no migrate()"
            state = migrate(state, version)
        instance.restore(state)
        return None

    return own, lambda: pickle.dumps(instance.snapshot(), protocol=5), restore


def rebuilding(instance: Any) -> list[tuple[_millstream.Interface, list[Callable[..., object]]]]:
    """The interfaces of a component's outputs, each with the methods that rebuild its state from them."""
    component = type(instance)
    found = []
    for interface in outputs_of(component):
        methods = []
        for name in methods_of(interface):
            method = getattr(instance, f"rebuild_{name}", None)
            if not callable(method):
                lacking = f"{component.__name__} has no rebuild_{name}(), which rebuild='outputs' needs"
                raise ServiceError(f"{lacking} for each method of {interface.__name__}")
            count = len(inspect.signature(getattr(interface, name)).parameters) - 1
            check_callback(f"{component.__name__}, rebuild_{name}", method, count)
            methods.append(method)
        found.append((described(interface), methods))
    return found
