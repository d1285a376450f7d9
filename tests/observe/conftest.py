"""A browser for the tests of the page: the Chromium of Debian, driven by Playwright."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import servers
from playwright.sync_api import Browser, Page, sync_playwright

PATIENCE_MS = 60_000


# One for each process of the run: a client of a shared one would dismiss the dialogs of all pages.
@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = servers.program("chromium", "apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], timeout=3 * PATIENCE_MS
        )
        yield started
        started.close()


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
