"""The page of a service: its dead letters with their errors, its methods, and what it has taken last."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms
import pytest
from documents import GUIDE
from observed import until
from store_server import StoreServer
from test_page import area
from test_prometheus import promtool
from test_queue_page import faults

if TYPE_CHECKING:
    from conftest import Tab

COMPONENT = Path(__file__).with_name("bad_orders.py")


HANGING = """
import pathlib
import time
from typing import Protocol

FREE = pathlib.Path(__file__).with_name("free")


class Orders(Protocol):
    def place(self, number: int) -> None: ...


class Desk(Orders):
    def place(self, number: int) -> None:
        if number == 3:
            ask_the_bank()


def ask_the_bank() -> None:
    while not FREE.exists():
        time.sleep(0.05)
"""
SYSTEM = """
[services.desk]
component = "hanging_desk.py:Desk"
in = "orders"
"""


HOLDING = """
import ctypes
import os
import pathlib
from typing import Protocol

PIPE = pathlib.Path(__file__).with_name("pipe")


class Orders(Protocol):
    def place(self, number: int) -> None: ...


class Desk(Orders):
    def place(self, number: int) -> None:
        if number == 3:
            # Waits for a writer. A call of a PyDLL keeps the lock of the interpreter.
            ctypes.PyDLL(None).open(os.fsencode(PIPE), os.O_RDONLY)
"""


def service_of(server: StoreServer) -> Any:
    services = server.snapshot().get("services", {}).get("services", [])
    return services[0] if services else {}


@contextmanager
def hanging(folder: Path, component: str, is_system: bool) -> Iterator[tuple[StoreServer, int]]:
    """A service, or a system of one, that is called six times; and the record of the fourth call."""
    (folder / "hanging_desk.py").write_text(component)
    (folder / "desk.toml").write_text(SYSTEM)
    spec = importlib.util.spec_from_file_location("hanging_desk", folder / "hanging_desk.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    orders = ms.publisher(module.Orders, folder / "orders")
    for number in range(6):
        orders.place(number)
    record = ms.Journal(folder / "orders", "r").next - 3
    command = ["run", f"{folder}/hanging_desk.py:Desk", "--in", str(folder / "orders")]
    command = ["up", str(folder / "desk.toml")] if is_system else command
    with StoreServer(Path(sys.executable), "-m", "millstream", "service", *command) as server:
        yield server, record


def test_a_dead_letter_is_shown_with_its_error(tab: "Tab", tmp_path: Path) -> None:
    sys.path.insert(0, str(COMPONENT.parent))
    import bad_orders

    pictures = GUIDE / "pictures" if os.environ.get("MILLSTREAM_PICTURES") else tmp_path
    orders = ms.publisher(bad_orders.Orders, tmp_path / "orders")
    for number in range(20):
        orders.place("VOD.L", number)
    orders.place("<script>alert(1)</script>", -7)
    orders.cancel("VOD.L")
    command = ["-m", "millstream", "service", "run", f"{COMPONENT}:Desk", "--in", str(tmp_path / "orders")]
    command += ["--out", str(tmp_path / "replies"), "--dead-letters", str(tmp_path / "bad")]
    with StoreServer(Path(sys.executable), *command, "--on-error", "skip") as server:
        until(
            "all calls",
            lambda: service_of(server).get("calls", 0) + service_of(server).get("dead_letters", 0) >= 22,
        )
        until("the dead letter", lambda: service_of(server)["last_dead_letters"])
        service = service_of(server)
        assert (service["name"], service["state"], service["dead_letters"]) == ("Desk", "good", 1)
        assert "quantity -7" in service["last_dead_letters"][0]
        until("the methods", lambda: {one["name"]: one["calls"] for one in service_of(server)["methods"]})
        methods = {one["name"]: one["calls"] for one in service_of(server)["methods"]}
        assert methods == {"place": 21, "cancel": 1}
        assert service["inputs"][0]["lag_records"] == 0
        assert service["last_calls"][-1].endswith('cancel(symbol="VOD.L")')
        assert 'accepted(symbol="VOD.L", total=190)' in service["last_outputs"][-1]
        until("the latencies", lambda: service_of(server)["hops"])
        assert server.get("/readyz")[0] == 200
        promtool("check", "metrics", text=server.get("/metrics")[1])
        metrics = server.metrics()
        assert metrics['millstream_service_dead_letters_total{service="Desk"}'] == 1
        assert metrics['millstream_service_method_calls_total{service="Desk",method="place"}'] == 21
        tab.page.goto(server.url)
        tab.wait("document.querySelectorAll('#services tr.warning').length === 1")
        assert "set 1 aside as dead letters" in tab.page.locator("#services-attention").inner_text()
        tab.page.locator("#services button", has_text="Desk").focus()
        tab.page.keyboard.press("Enter")
        tab.wait("document.getElementById('last-dead-letters')?.textContent.includes('quantity -7')")
        tab.wait("document.getElementById('last-calls')?.textContent.includes('<script>alert(1)')")
        assert tab.page.locator("#services-part script, #section-detail script").count() == 0
        assert "place" in tab.page.locator("#methods").inner_text()
        assert faults(tab) == []
        tab.page.emulate_media(color_scheme="dark")
        assert faults(tab) == []
        tab.page.emulate_media(color_scheme="light")
        tab.page.evaluate("scrollTo(0, 0)")
        tab.page.screenshot(path=pictures / "page-service.png", clip=area(880))
        assert tab.errors == []


@pytest.mark.parametrize("is_system", [False, True])
def test_a_call_that_hangs_is_named_with_its_stack(tab: "Tab", tmp_path: Path, is_system: bool) -> None:
    with hanging(tmp_path, HANGING, is_system) as (server, record):
        call = until("the call", lambda: service_of(server).get("call"))
        assert (call["method"], call["input"], call["record"]) == ("place", "orders", record)
        stack = until("the stack", lambda: (service_of(server)["call"] or {}).get("stack"))
        # The frames are those of the user.
        assert "ask_the_bank()" in stack and stack.startswith(f'  File "{tmp_path}') and "in place" in stack
        service = service_of(server)
        # What it has done before the call is there, however few calls those were; its rate is not known.
        assert (service["calls"], service["call_rate"], service["state"]) == (3, None, "stuck")
        said = until("the condition", lambda: [one["words"] for one in server.snapshot()["conditions"]])
        # One cause, one condition: the lag comes of the call.
        assert (
            len(said) == 1 and said[0].startswith('Service "') and f"place() with record {record}" in said[0]
        )
        tab.page.goto(server.url)
        tab.wait("document.querySelectorAll('#services tr.cause').length === 1")
        tab.wait("document.querySelector('#services-conditions pre')?.textContent.includes('ask_the_bank()')")
        row = tab.page.locator("#services tr.cause").inner_text()
        assert "inside place()" in row and "–" in row
        tab.page.locator("#services tbody button").click()
        tab.wait("document.getElementById('service-stack')?.textContent.includes('ask_the_bank()')")
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            assert faults(tab) == []
            tab.page.screenshot(path=tmp_path / f"hung-{scheme}.png")
        tab.page.set_viewport_size({"width": 390, "height": 844})
        tab.wait("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        (tmp_path / "free").touch()
        until("the other calls", lambda: service_of(server)["calls"] == 6)
        until("no condition", lambda: server.snapshot()["conditions"] == [])
        tab.wait("document.querySelectorAll('#services tr.cause').length === 0")
        assert service_of(server)["call"] is None and service_of(server)["call_rate"] is not None
        assert tab.errors == []


@pytest.mark.parametrize("is_system", [False, True])
def test_a_call_that_holds_the_interpreter_is_named(tab: "Tab", tmp_path: Path, is_system: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    try:
        with hanging(tmp_path, HOLDING, is_system) as (server, record):
            call = until("the call", lambda: service_of(server).get("call"))
            assert (call["method"], call["input"], call["record"]) == ("place", "orders", record)
            until("all of the time", lambda: service_of(server)["busy"] == 1.0)
            held = until("the condition", lambda: [one["name"] for one in server.snapshot()["conditions"]])
            assert held == ["MillstreamServiceStuck"]
            metrics = server.metrics()
            name = service_of(server)["name"]
            assert metrics[f'millstream_service_busy_ratio{{service="{name}"}}'] == 1
            tab.page.goto(server.url)
            tab.wait("document.getElementById('state').className.includes('critical')")
            tab.wait("document.querySelectorAll('#services tr.cause').length === 1")
            row = tab.page.locator("#services tr.cause").inner_text()
            assert "inside place()" in row and "100%" in row
            (tmp_path / "pipe").write_text("")
            until("the other calls", lambda: service_of(server)["calls"] == 6)
            until("no condition", lambda: server.snapshot()["conditions"] == [])
            until("time", lambda: service_of(server)["busy"] < 1.0)
            assert tab.errors == []
    finally:
        # A process that is still in the call ends after it.
        with suppress(OSError):
            os.close(os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK))
