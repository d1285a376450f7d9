"""The alerts for queues, journals and services fire, by the tests of rules of Prometheus."""

from pathlib import Path

import pytest
from test_prometheus import RULES, promtool

CASES = {
    "MillstreamFlowDown": (
        [
            ('millstream_flow_running{flow="orders"}', "1x2 0x20"),
            ('millstream_flow_running{flow="starts"}', "0x1 1x20"),
        ],
        'flow="orders",severity="critical"',
    ),
    "MillstreamQueueConsumerStuck": (
        [
            ('millstream_queue_held_seconds{queue="orders"}', "0+60x10"),
            ('millstream_queue_items{queue="orders"}', "5x10"),
        ],
        'queue="orders",severity="critical"',
    ),
    "MillstreamQueueNotRead": (
        [('millstream_queue_oldest_seconds{queue="orders"}', "0+60x20")],
        'queue="orders",severity="warning"',
    ),
    "MillstreamFollowerLags": (
        [('millstream_journal_follower_lag_seconds{follower="backup",journal="orders"}', "0+60x10")],
        'follower="backup",journal="orders",severity="critical"',
    ),
    "MillstreamServiceDown": (
        [('millstream_service_process_running{process="desk"}', "1 0x20")],
        'process="desk",severity="critical"',
    ),
    "MillstreamServiceDeadLetters": (
        [
            ('millstream_service_dead_letters_total{service="Desk"}', "0+0x5 1x15"),
            ('millstream_service_skipped_records_total{service="Desk"}', "0x20"),
        ],
        'service="Desk",severity="warning"',
    ),
}


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires(alert: str, tmp_path: Path) -> None:
    series, labels = CASES[alert]
    lines = "".join(f"  - series: '{name}'\n    values: '{values}'\n" for name, values in series)
    minute = 8 if alert == "MillstreamServiceDeadLetters" else 18 if "NotRead" in alert else 9
    fires = f'{{alertname="{alert}",alertstate="firing",{labels}}}'
    test = tmp_path / "test.yml"
    test.write_text(
        f"rule_files: ['{RULES}']\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n{lines}"
        f'  promql_expr_test:\n  - expr: \'ALERTS{{alertname="{alert}",alertstate="firing"}}\'\n'
        f"    eval_time: {minute}m\n    exp_samples: [{{labels: 'ALERTS{fires}', value: 1}}]\n"
        f"  - expr: 'ALERTS{{alertstate=\"firing\"}}'\n    eval_time: 0m\n    exp_samples: []\n"
    )
    promtool("test", "rules", str(test))
