"""Fixtures: buckets of an S3 server, and places that are a bucket or a local directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from object_places import Directory, InBucket, Place
from s3_server import Bucket, S3Server


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A bucket of this test."""
    return s3.create_bucket()


@pytest.fixture(params=["s3", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place for objects."""
    if request.param == "directory":
        return Directory(tmp_path / "objects")
    bucket: Any = request.getfixturevalue("bucket")
    return InBucket(bucket, "pre/fix")
