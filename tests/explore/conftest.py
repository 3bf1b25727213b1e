"""The built page in a real browser, started once for each process of the tests."""

from __future__ import annotations

import pytest

from taut.explore.page import BUILT
from tests.helpers.browser import Browser, chromium


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    program = chromium()
    if program is None:
        pytest.skip("no chromium and no google-chrome on this computer")
    with Browser(tmp_path_factory.mktemp("browser"), program) as browser:
        yield browser


@pytest.fixture
def visit(started):
    """A function that opens the page at an address (what stands after #) and gives the browser."""

    def go(address: str = "", width: int = 1280, height: int = 900, *, dark: bool = False):
        started.events.clear()
        started.open(f"{BUILT.as_uri()}#{address}", width, height, dark=dark)
        started.settle()
        return started

    return go


@pytest.fixture(scope="module")
def page(started):
    """The page, for tests that only compute and leave it as it is."""
    started.open(BUILT.as_uri())
    return started
