"""Each condition has an alert, which fires once it has held for its time, by Prometheus' tests of rules."""

import re
from pathlib import Path

from test_prometheus import RULES, promtool

RULE = re.compile(r"- alert: (\w+)\n.*\n    for: (\d+)([ms])\n")


def test_each_alert_fires_for_its_condition_alone(tmp_path: Path) -> None:
    rules = RULE.findall(RULES.read_text())
    assert len(rules) == RULES.read_text().count("- alert:") > 30
    tests = []
    for name, time, unit in rules:
        seconds = int(time) * {"m": 60, "s": 1}[unit]
        labels = f'condition="{name}",severity="critical",subject="orders"'
        fires = f'alertname="{name}",alertstate="firing",{labels}'
        before = (
            ""
            if seconds == 0
            else f"""
  - expr: 'ALERTS{{alertstate="firing"}}'
    eval_time: {seconds}s
    exp_samples: []"""
        )
        tests.append(f"""
- interval: 5s
  input_series:
  - series: 'millstream_condition{{{labels}}}'
    values: '_ 1x200'
  promql_expr_test:
  - expr: 'ALERTS{{alertstate="firing"}}'
    eval_time: {seconds + 10}s
    exp_samples: [{{labels: 'ALERTS{{{fires}}}', value: 1}}]{before}""")
    test = tmp_path / "test.yml"
    test.write_text(f"rule_files: ['{RULES}']\nevaluation_interval: 5s\ntests:{''.join(tests)}\n")
    promtool("test", "rules", str(test))
