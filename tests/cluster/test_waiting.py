"""A flow that waits for a machine is seen: its page, its metrics and its readiness name the machine from the
beginning of the wait."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from shapes import command
from supervised import Supervised, wait_for
from test_cluster_page import ENDLESS, page, read, snapshot


def readiness(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{url}readyz", timeout=60) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


def samples(url: str, metric: str) -> list[str]:
    return [line for line in read(f"{url}metrics").splitlines() if line.startswith(metric)]


@pytest.mark.parametrize("first", [0, 1])
def test_the_missing_process_is_named_until_it_comes(
    first: int, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(ENDLESS)
    ports = [free_port(), free_port()]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)

    def start(process: int) -> Supervised:
        return Supervised(command(flow, "--process", process, "--hosts", hosts, "--http", "127.0.0.1:0"))

    waits = start(first)
    missing = 1 - first
    url = page(waits)
    wait_for(lambda: "waiting" in snapshot(url), "the sentence")
    named = f"The flow waits for process {missing} (127.0.0.1:{ports[missing]}) for "
    assert snapshot(url)["waiting"].startswith(named), snapshot(url)
    code, words = readiness(url)
    assert code == 503 and named in words, words
    assert samples(url, "millstream_flow_running{") == [
        f'millstream_flow_running{{process="{first}",flow="observed"}} 0.0'
    ]
    assert samples(url, "millstream_flow_processes_missing{") == [
        f'millstream_flow_processes_missing{{flow="observed",process="{missing}"}} 1.0'
    ]
    other = start(missing)
    wait_for(lambda: readiness(url)[0] == 200, "the run")
    assert "waiting" not in snapshot(url)
    assert samples(url, "millstream_flow_processes_missing{") == []
    assert f'millstream_flow_running{{process="{first}",flow="observed"}} 1.0' in read(f"{url}metrics")
    # That ends the run of both; another signal would come while Python ends, which has no handler then.
    waits.process.terminate()
    for one in (waits, other):
        one.end(0)


def test_a_process_that_is_refused_is_named_with_the_reason(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = tmp_path / "flow.py"
    newer = tmp_path / "newer.py"
    flow.write_text(ENDLESS)
    newer.write_text(ENDLESS + "# a new version\n")
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    place = ["--hosts", hosts, "--http", "127.0.0.1:0"]
    both = [
        Supervised(command(file, "--process", process, *place)) for process, file in enumerate((flow, newer))
    ]
    urls = [page(one) for one in both]
    wait_for(lambda: all("another version" in readiness(url)[1] for url in urls), "the reason")
    assert all("another version" in snapshot(url)["waiting"] for url in urls)
    for one in both:
        one.process.terminate()
        one.end(0)
