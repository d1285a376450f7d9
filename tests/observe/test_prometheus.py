"""The metrics, by Prometheus itself: its linters, and a server that scrapes a running flow."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import servers
from documents import ROOT
from observed import HEALTHY, PATIENCE, SLOW, Observed, until

REMEDY = "apt-get install prometheus"
RULES = ROOT / "contrib" / "prometheus" / "millstream.rules.yml"


def promtool(*arguments: str, text: str = "") -> None:
    command = [servers.program("promtool", REMEDY), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and not done.stderr.strip(), done.stdout + done.stderr


def test_the_linters_find_nothing(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    with Observed(tmp_path, SLOW, "--state", str(tmp_path / "state")) as flow:
        until("ages", lambda: flow.step("enrich")["ages"])
        promtool("check", "metrics", text=flow.get("/metrics")[1])


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[int]:
    """The port of a Prometheus that scrapes ``target`` each second."""
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}']\n"
        f"scrape_configs: [{{job_name: millstream, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    promtool("check", "config", str(config))
    command = [
        servers.program("prometheus", REMEDY),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:{port}",
    ]
    for _ in range(servers.PORTS):
        if found := servers.started(command, folder / "prometheus.log"):
            break
    else:
        raise AssertionError((folder / "prometheus.log").read_text())
    process, port = found
    try:
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def ask(port: int, query: str) -> list[Any]:
    url = f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}"
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return list(json.load(answer)["data"]["result"])
    except OSError:
        return []  # it starts


def test_a_scrape_has_the_figures_of_the_flow(tmp_path: Path) -> None:
    with Observed(tmp_path, HEALTHY, "--state", str(tmp_path / "state")) as flow:
        with prometheus(tmp_path, f"{flow.host}:{flow.port}") as port:
            items = 'millstream_step_items_in_total{flow="healthy",step="one more"}'
            found = until("items", lambda: [one for one in ask(port, items) if float(one["value"][1]) > 0])
            assert found[0]["metric"]["job"] == "millstream"
            # What was scraped is not more than the flow has now.
            assert float(found[0]["value"][1]) <= flow.step("one more")["items_in"]
            until("a rate", lambda: ask(port, f"rate({items}[10s]) > 0"))
            ages = 'rate(millstream_step_age_seconds_bucket{step="one more"}[10s])'
            until("an age", lambda: ask(port, f"histogram_quantile(0.99, {ages}) > 0"))
            until("the state", lambda: ask(port, "millstream_flow_running == 1"))
            until("commits", lambda: ask(port, "millstream_epoch_commits_total > 1"))
            dashboard = json.loads((ROOT / "contrib" / "grafana" / "millstream.json").read_text())
            rows = [panel.get("panels", []) for panel in dashboard["panels"] if panel["type"] == "row"]
            shown = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
            assert len(rows) > 1
            for panel in [*shown, *(panel for row in rows for panel in row)]:
                expr = panel["targets"][0]["expr"].replace("$__rate_interval", "10s")
                # A query with a mistake is an error, and raises.
                url = f"http://127.0.0.1:{port}/api/v1/query?query={quote(expr)}"
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    assert json.load(answer)["status"] == "success", expr
