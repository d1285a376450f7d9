"""A browser for the tests of the page: the Chromium of Debian, driven by Playwright."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import servers
from playwright.sync_api import Browser, Page, sync_playwright
from shared import Shared

PATIENCE_MS = 60_000


@pytest.fixture(scope="session")
def browser(shared: Shared) -> Iterator[Browser]:
    """One browser for all processes; each test has a context of its own in it."""

    def launch(folder: Path) -> int:
        command = [servers.program("chromium", "apt-get install chromium"), "--headless=new", "--no-sandbox"]
        command += ["--remote-debugging-port={port}", f"--user-data-dir={folder / 'profile'}"]
        process, port = servers.start(command, folder)
        shared.end_with_run(process.pid)
        return port

    with sync_playwright() as playwright:
        address = f"http://127.0.0.1:{shared.once('chromium', launch)}"
        yield playwright.chromium.connect_over_cdp(address, timeout=3 * PATIENCE_MS)


class Tab:
    """A page of the browser, and what its console has reported."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def wait(self, condition: str) -> None:
        """Waits until an expression is true; ``wait_for_function`` needs ``eval``, which the page forbids."""
        end = time.monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"{condition}: not within {PATIENCE_MS / 1000} s; {self.errors}"
            self.page.wait_for_timeout(50)

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    context.set_default_timeout(PATIENCE_MS)
    yield Tab(context.new_page())
    context.close()
