"""An S3 server that tests start (moto), with an independent client (boto3) that looks at its buckets."""

from __future__ import annotations

import itertools
import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from servers import server

__all__ = ["Bucket", "S3Server", "command", "s3_server"]

REGION = "us-east-1"
NUMBERS = itertools.count(1)


class S3Server:
    """A running server.

    Args:
        port: its port.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.keys = ("any", "any")
        iam = self.client("iam")
        iam.create_user(UserName="flow")
        key = iam.create_access_key(UserName="flow")["AccessKey"]
        everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
        iam.put_user_policy(UserName="flow", PolicyName="all", PolicyDocument=policy)
        self.keys = (key["AccessKeyId"], key["SecretAccessKey"])

    def check_keys(self, checks: bool) -> None:
        """Refuses requests with wrong keys from now on, or accepts all.

        It does not know the right signature of a listing whose prefix has a ``/``, and refuses it, too.
        """
        reset = f"http://127.0.0.1:{self.port}/moto-api/reset-auth"
        count = b"0" if checks else b"1e9"
        request = urllib.request.Request(reset, count, {"Content-Type": "text/plain"}, method="POST")
        urllib.request.urlopen(request).close()

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name=REGION,
            aws_access_key_id=self.keys[0],
            aws_secret_access_key=self.keys[1],
            config=Config(s3={"addressing_style": "path"}),
        )

    def config(self, port: int | None = None, secret: str | None = None) -> dict[str, str]:
        """The configuration for ``ms.objects``, with another port for a proxy or another secret."""
        return {
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "region": REGION,
            "access_key_id": self.keys[0],
            "secret_access_key": secret or self.keys[1],
        }

    def create_bucket(self) -> Bucket:
        name = f"bucket-{os.getpid()}-{next(NUMBERS)}"
        self.client("s3").create_bucket(Bucket=name)
        return Bucket(self, name)


class Bucket:
    """A bucket, as boto3 sees it."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.server = server
        self.name = name
        self.client = server.client("s3")

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=name, Body=content)

    def names(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def get(self, name: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.name, Key=name)["Body"].read()
        return content


def command() -> list[str]:
    """How a server is started; ``{port}`` is its port."""
    environment = "import os; os.environ['INITIAL_NO_AUTH_ACTION_COUNT'] = '1e9'; "
    main = "import sys; from moto.server import main; main(sys.argv[1:])"
    return [sys.executable, "-c", environment + main, "-H", "127.0.0.1", "-p", "{port}"]


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Runs a server."""
    with server(command(), folder) as port:
        yield S3Server(port)
