"""Base classes from packages that need not be there."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from taut._base.optional import missing


def base(name: str, *packages: str) -> Any:
    """The class from the first of the packages that is there, those already imported first.

    Without any it is ``object``, so that modules with callbacks can be imported (by documentation
    tools, say); :func:`needs` then says what is missing when one is made.
    """
    for package in sorted(packages, key=lambda package: package not in sys.modules):
        try:
            return getattr(import_module(package), name)
        except ImportError:
            continue
    return object


def needs(found: Any, what: str, *extras: str, packages: str = "") -> None:
    """Raise ImportError if there was no base class."""
    if found is object:
        raise missing(what, *extras, packages=packages)
