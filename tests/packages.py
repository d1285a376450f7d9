"""The manifests of the crates that are published."""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def published() -> dict[str, dict[str, Any]]:
    """The manifests of the library crates that are published, by name."""
    manifests = [tomllib.loads(path.read_text("utf-8")) for path in sorted(ROOT.glob("crates/*/Cargo.toml"))]
    return {one["package"]["name"]: one for one in manifests if one["package"].get("publish", True)}
