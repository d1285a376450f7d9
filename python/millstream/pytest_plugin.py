"""Collects tests of services: each ``in.yaml`` below a file ``component``, which contains ``MODULE:CLASS``.

The fixture ``millstream_replay`` replays recorded input through a flow, both as files beside the test.

``pytest --millstream-update`` rewrites what is expected, ``--millstream-agitate`` runs the variants too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

__all__ = ["millstream_replay", "pytest_addoption", "pytest_collect_file"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("millstream")
    group.addoption(
        "--millstream-update", action="store_true", help="rewrite the expected calls of service tests"
    )
    group.addoption(
        "--millstream-agitate", action="store_true", help="run service tests with wrong calls too"
    )


@pytest.fixture
def millstream_replay(request: pytest.FixtureRequest) -> Any:
    """``millstream_replay("flow.py", "recorded")``: ``ms.testing.replay`` with paths from the test's folder.

    The flow may be a ``Flow`` too.
    """
    from .testing import replay

    folder = request.path.parent

    def run(flow: Any, recorded: Any, **options: Any) -> dict[str, list[Any]]:
        places = (
            {name: folder / path for name, path in recorded.items()} if isinstance(recorded, dict) else None
        )
        file = str(folder / flow) if isinstance(flow, str) else flow
        return replay(file, folder / recorded if places is None else places, **options)

    return run


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name != "in.yaml" or not any((above / "component").is_file() for above in file_path.parents):
        return None
    return CallsFile.from_parent(parent, path=file_path)


class CallsFile(pytest.File):
    """The test of a folder, and its variants."""

    def collect(self) -> Any:
        from ._service.command import component_of
        from .service import variants

        folder = self.path.parent
        yield CallsItem.from_parent(self, name=folder.name)
        if self.config.getoption("--millstream-agitate"):
            for variant in variants(component_of(str(folder)), folder):
                item = CallsItem.from_parent(self, name=f"{folder.name}[{variant}]")
                item.variant = variant
                yield item


class Difference(Exception):
    """The difference of a component's output, as text."""


class CallsItem(pytest.Item):
    """A run of the test, or of a variant."""

    variant: str | None = None

    def runtest(self) -> None:
        from ._service.command import component_of
        from .service import check

        folder = self.path.parent
        update = self.config.getoption("--millstream-update")
        outcome = check(component_of(str(folder)), folder, update=update, variant=self.variant)
        if outcome.failed:
            raise Difference("\n".join(f"{path}:\n{difference}" for path, difference in outcome.failed))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Difference):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"service: {self.name}"
