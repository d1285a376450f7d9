"""Logins by OAUTHBEARER with tokens of a function, at a broker that takes tokens without a signature."""

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import Judge, put, until
from documents import GUIDE, blocks

SETTINGS: dict[str, Any] = {"security.protocol": "sasl_plaintext", "socket.timeout.ms": 20_000}


def part(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def unsigned(seconds: float = 60, user: str = "flow") -> ms.kafka.Token:
    """A JSON Web Token without a signature."""
    now = time.time()
    claims = {"sub": user, "iat": now, "exp": now + seconds}
    return ms.kafka.Token(f"{part({'alg': 'none'})}.{part(claims)}.", now + seconds, user)


class Tokens:
    """Makes tokens, counts them, and fails the first times."""

    def __init__(self, seconds: float = 60, failures: int = 0) -> None:
        self.seconds = seconds
        self.failures = failures
        self.made = 0

    def __call__(self) -> ms.kafka.Token:
        if self.failures > 0:
            self.failures -= 1
            raise OSError("the identity provider is away")
        self.made += 1
        return unsigned(self.seconds)


def copy(broker: Broker, source: str, target: str, tokens: Callable[[], Any], **options: Any) -> ms.Flow:
    flow = ms.Flow("tokens")
    read = ms.kafka.read(broker.oauth, source, decode=str, settings=SETTINGS, token=tokens, **options)
    flow.source("in", read).sink("out", ms.kafka.write(broker.oauth, target, settings=SETTINGS, token=tokens))
    return flow


def test_a_flow_logs_in_with_tokens(broker: Broker, tmp_path: Path) -> None:
    source = broker.create("tokens-from")
    target = broker.create("tokens-to")
    tokens = Tokens()
    put(broker, source, ["a", "b"])
    ms.run(copy(broker, source, target, tokens, end="latest"), state=tmp_path / "state")
    assert Judge(broker, target).values() == [b"a", b"b"]
    assert tokens.made > 0


def test_the_function_is_called_before_a_token_ends(broker: Broker, tmp_path: Path) -> None:
    source = broker.create("ends-from")
    target = broker.create("ends-to")
    tokens = Tokens(seconds=10)
    judge = Judge(broker, target)
    running = copy(broker, source, target, tokens).start(state=tmp_path / "state", epoch=0.05)
    try:
        put(broker, source, ["a"])
        assert judge.wait_for(1) == [b"a"]
        made = tokens.made
        # The flow is idle meanwhile.
        until(lambda: tokens.made >= made + 6)
        put(broker, source, ["b"])
        assert judge.wait_for(2) == [b"a", b"b"]
    finally:
        running.stop()


def test_a_function_that_fails_is_called_again(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    source = broker.create("fails-from")
    tokens = Tokens(failures=1)
    put(broker, source, ["a"])
    settings = {**SETTINGS, "socket.timeout.ms": 3000}
    flow = ms.Flow("tokens")
    out = ms.testing.collect()
    read = ms.kafka.read(broker.oauth, source, decode=str, settings=settings, token=tokens, end="latest")
    flow.source("in", read).sink("out", out)
    ms.run(flow)
    assert list(out) == ["a"]
    assert "the identity provider is away" in caplog.text


def test_no_error_has_the_token(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = broker.create("refused-token")
    secret = f"{part({'alg': 'none'})}.{part({'sub': 'x', 'iat': 1, 'exp': 2})}."

    def ended() -> ms.kafka.Token:
        return ms.kafka.Token(secret, time.time() + 60, "x")

    flow = ms.Flow("tokens")
    read = ms.kafka.read(broker.oauth, topic, settings=SETTINGS, token=ended, end="latest")
    flow.source("in", read).sink("out", ms.testing.discard())
    with pytest.raises((ms.FlowError, OSError), match="refuses: .*uthentication") as failed:
        ms.run(flow)
    assert secret not in str(failed.value) + caplog.text + repr(ended())


def test_the_guides_function_makes_tokens_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are signed without a request to AWS."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    (program,) = [block for block in blocks(GUIDE / "kafka.md", "python") if "MSKAuthTokenProvider" in block]
    made: dict[str, Any] = {}
    exec(program, made)
    token = made["token"]()
    # A signed URL in base64, as the broker expects it.
    url = base64.urlsafe_b64decode(token.value + "==").decode()
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "X-Amz-Signature=" in url and "sesame" not in url + repr(token)
    assert 60 < token.ends - time.time() < 3600
