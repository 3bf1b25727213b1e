"""The compiled kernel for the exact constants; importing its modules imports numba."""

from __future__ import annotations

import functools
from types import ModuleType


@functools.cache
def imported_driver() -> ModuleType:
    """What calls compiled code. It imports numba, so not before it is needed."""
    from taut._softmax.kernel import driver

    return driver
