"""Where things are: the repository, its tests and results, and the shared material beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCE = ROOT / "src" / "taut"
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
SHARED = ROOT.parent / "shared"

needs_repository = pytest.mark.skipif(
    not (DOCS / "reference.md").exists(), reason="needs the repository: the sources alone are here"
)
