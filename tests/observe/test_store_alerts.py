"""Each condition has an alert, which fires once it has held for its time, by Prometheus' tests of rules."""

import re
from pathlib import Path

from test_prometheus import RULES, promtool

RULE = re.compile(r"- alert: (\w+)\n.*\n    for: (\d+)([ms])\n    labels:\n      severity: (\w+)\n")


def test_each_alert_fires_for_its_condition_alone(tmp_path: Path) -> None:
    rules = RULE.findall(RULES.read_text())
    assert len(rules) == RULES.read_text().count("- alert:") > 30
    severities: dict[str, list[str]] = {}
    for name, *_, severity in rules:
        severities.setdefault(name, []).append(severity)
    after = {name: int(time) * {"m": 60, "s": 1}[unit] for name, time, unit, _ in rules}
    tests = [case(name, after[name], severities[name]) for name in severities]
    test = tmp_path / "test.yml"
    test.write_text(f"rule_files: ['{RULES}']\nevaluation_interval: 5s\ntests:{''.join(tests)}\n")
    promtool("test", "rules", str(test))


def case(name: str, after: int, severities: list[str]) -> str:
    """A condition that holds from 5 s on; one of two severities becomes worse after 10 s."""
    values = ["_ 1x200"] if len(severities) == 1 else ["_ 1 1", "_ _ _ 1x200"]
    lines = [
        f"""
  - series: 'millstream_condition{{condition="{name}",severity="{severity}",subject="orders"}}'
    values: '{value}'"""
        for severity, value in zip(severities, values, strict=True)
    ]
    alert = f'alertname="{name}",alertstate="firing",condition="{name}",subject="orders"'
    fires = ", ".join(
        f"{{labels: 'ALERTS{{{alert},severity=\"{severity}\"}}', value: 1}}" for severity in severities
    )
    before = f"""
  - expr: 'ALERTS{{alertstate="firing"}}'
    eval_time: {after}s
    exp_samples: []"""
    return f"""
- interval: 5s
  input_series:{"".join(lines)}
  promql_expr_test:
  - expr: 'ALERTS{{alertstate="firing"}}'
    eval_time: {after + 20}s
    exp_samples: [{fires}]{before if after else ""}"""
