"""The page of ``millstream service up``: every service of a system, and the processes that run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms
import pytest
from documents import GUIDE
from observed import PATIENCE, until
from store_server import StoreServer
from test_page import area
from test_prometheus import promtool
from test_queue_page import faults

if TYPE_CHECKING:
    from conftest import Tab

PARTS = """
from typing import Protocol


class Numbers(Protocol):
    def number(self, n: int) -> None: ...


class Sums(Protocol):
    def sum(self, total: int) -> None: ...


class Doubles(Protocol):
    def double(self, total: int) -> None: ...


class Adder(Numbers):
    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self.total = 0

    def number(self, n: int) -> None:
        self.total += n
        self.sums.sum(self.total)


class Doubler(Sums):
    def __init__(self, doubles: Doubles) -> None:
        self.doubles = doubles

    def sum(self, total: int) -> None:
        self.doubles.double(2 * total)
"""

SYSTEM = """
[services.adder]
component = "summing_parts.py:Adder"
in = "numbers"
out = "sums"

[services.doubler]
component = "summing_parts.py:Doubler"
in = "sums"
out = "doubles"
"""

UP = ["-m", "millstream", "service", "up"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "summing_parts.py").write_text(PARTS)
    (tmp_path / "desk.toml").write_text(SYSTEM)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("summing_parts", None)


def publish(folder: Path, *numbers: int) -> None:
    import summing_parts

    out = ms.publisher(summing_parts.Numbers, folder / "numbers")
    for number in numbers:
        out.number(number)


def shown(server: StoreServer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The services and the processes of the page, by name."""
    found = server.snapshot().get("services", {})
    services = {one["name"]: one for one in found.get("services", [])}
    return services, {one["name"]: one for one in found.get("processes", [])}


def up(folder: Path, *options: str) -> StoreServer:
    return StoreServer(Path(sys.executable), *UP, str(folder / "desk.toml"), *options)


def test_each_service_of_a_system_is_shown(folder: Path, tab: Tab) -> None:
    with up(folder) as server:
        # An input that is not there: the system is not ready, and names the service that waits.
        until("the services", lambda: len(shown(server)[0]) == 2)
        assert server.get("/healthz")[0] == 200
        status, why = server.get("/readyz")
        assert (status, "starts" in why) == (503, True)
        publish(folder, 1, 2, 3)
        until("the calls", lambda: all(one["calls"] == 3 for one in shown(server)[0].values()))
        until("ready", lambda: server.get("/readyz")[0] == 200)
        services, processes = shown(server)
        assert list(services) == ["adder", "doubler"] and list(processes) == ["adder", "doubler"]
        assert services["adder"]["process"] == "adder" and services["adder"]["state"] == "good"
        until("the outputs", lambda: shown(server)[0]["doubler"]["last_outputs"])
        services, _ = shown(server)
        assert services["doubler"]["last_outputs"][-1].endswith("double(total=12)")
        assert services["doubler"]["inputs"][0]["lag_records"] == 0
        history = server.json("/api/history.json?of=service&name=doubler")
        assert len(history["series"]["call_rate"]) >= 1
        promtool("check", "metrics", text=server.get("/metrics")[1])
        metrics = server.metrics()
        assert metrics['millstream_service_calls_total{service="doubler"}'] == 3
        assert metrics['millstream_service_process_running{process="adder"}'] == 1

        tab.page.goto(server.url)
        tab.wait("document.querySelectorAll('#services tbody tr').length === 2")
        tab.wait("document.querySelectorAll('#service-processes tbody tr').length === 2")
        tab.page.locator("#services button", has_text="doubler").click()
        tab.wait("document.getElementById('last-calls')?.textContent.includes('sum(total=6)')")
        assert faults(tab) == []
        tab.page.keyboard.press("Escape")
        pictures = GUIDE / "pictures" if os.environ.get("MILLSTREAM_PICTURES") else folder
        tab.page.screenshot(path=pictures / "page-system.png", clip=area(480))

        killed = processes["adder"]["pid"]
        os.kill(killed, signal.SIGKILL)
        until("the restart", lambda: shown(server)[1]["adder"]["restarts"] == 1)
        until("the new process", lambda: shown(server)[1]["adder"]["pid"] not in (None, killed))
        assert shown(server)[1]["adder"]["error"] == "killed by SIGKILL"
        assert server.metrics()['millstream_service_process_restarts_total{process="adder"}'] == 1
        tab.wait("document.getElementById('service-processes').textContent.includes('killed by SIGKILL')")
        publish(folder, 4)
        until("the call after it", lambda: shown(server)[0]["doubler"]["calls"] == 4)
        assert tab.errors == []
        server.stop()


def test_a_process_that_stays_down_is_reported_first(folder: Path) -> None:
    publish(folder, 1)
    broken = SYSTEM.replace("summing_parts.py:Doubler", "summing_parts.py:Missing")
    (folder / "desk.toml").write_text(broken)
    with up(folder) as server:
        until("the failure", lambda: shown(server)[1].get("doubler", {}).get("state") == "failed")
        services, processes = shown(server)
        assert services["doubler"]["state"] == "down" and "Missing" in processes["doubler"]["error"]
        said = server.snapshot()["conditions"][0]["words"]
        assert said.startswith('Process "doubler" is failed: ') and "Missing" in said
        assert server.get("/readyz") == (503, f"{said}\n")
        assert server.metrics()['millstream_service_process_running{process="doubler"}'] == 0
        # The file is corrected and applied to the system that runs: the page follows.
        (folder / "desk.toml").write_text(SYSTEM)
        again = subprocess.run(
            [sys.executable, *UP, str(folder / "desk.toml")], capture_output=True, text=True, timeout=PATIENCE
        )
        assert again.returncode == 0, again.stderr
        until("the corrected service", lambda: shown(server)[0]["doubler"]["calls"] == 1)
        assert shown(server)[0]["doubler"]["state"] == "good"
        # A second page is refused, with the address of the first.
        second = [sys.executable, *UP, str(folder / "desk.toml"), "--http", "127.0.0.1:0"]
        refused = subprocess.run(second, capture_output=True, text=True, timeout=PATIENCE)
        assert refused.returncode == 2 and f"{server.host}:{server.port}" in refused.stderr
        server.stop()


def test_readers_of_the_page_of_a_system(folder: Path) -> None:
    (folder / "token").write_text("abc123")
    publish(folder, 1)
    with up(folder, "--http-token-file", str(folder / "token")) as server:
        assert server.get("/api/snapshot.json")[0] == 401
        right = {"Authorization": "Bearer abc123"}
        assert server.get("/api/snapshot.json", **right)[0] == 200
        server.stop()
    for options, said in (
        (["--http-open"], "--http-token-file and --http-open need --http"),
        (["--http", "0.0.0.0:0"], "other machines can reach this address"),
    ):
        command = [sys.executable, *UP, str(folder / "desk.toml"), *options]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
