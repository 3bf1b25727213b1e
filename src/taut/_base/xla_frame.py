"""How compiled code reads what XLA hands to a typed custom call, and what it must answer.

The layout is that of xla/ffi/api/c_api.h (versions 0.1 to 0.3) on machines of 64 bits: all fields
are words of eight bytes, or halves of one. XLA calls a handler for every
stage and, to register it, with an extension that asks which version it is made for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]

from taut._base.compiled_memory import memory

MAJOR, MINOR = 0, 3
EXECUTE = 3
_METADATA = 1  # type of the extension

# Words of XLA_FFI_CallFrame
_EXTENSION, _API, _STAGE, _ARGUMENTS, _RESULTS, _ATTRIBUTES = 1, 2, 4, 9, 14, 20
# Words of XLA_FFI_Buffer and of XLA_FFI_Array
_BUFFER_DATA, _BUFFER_RANK, _BUFFER_DIMENSIONS, _ARRAY_DATA = 3, 4, 5, 2


@njit
def word(address: Any, index: Any) -> Any:
    """A word of eight bytes."""
    return carray(memory(address), (index + 1,), np.int64)[index]


@njit
def half_word(address: Any, index: Any) -> Any:
    """A 32-bit integer."""
    return carray(memory(address), (index + 1,), np.int32)[index]


@njit
def asks_to_execute(frame: Any) -> Any:
    """Whether the arguments and results are there; answers the question for the version."""
    extension = word(frame, _EXTENSION)
    if extension != 0:
        if half_word(extension, 2) == _METADATA:
            _answer(word(extension, 3), word(frame, _API))
        return False
    return half_word(frame, 2 * _STAGE) == EXECUTE


@njit
def _answer(metadata: Any, api: Any) -> None:
    """Write the version and no traits into XLA_FFI_Metadata.

    Versions before this one had the same fields as far as they are used here, so theirs is given.
    XLA passes its version, except version 0.1, which passes none.
    """
    minor = 1
    if api != 0:
        minor = min(MINOR, half_word(api, 9)) if half_word(api, 8) == MAJOR else MINOR
    fields = carray(memory(metadata), (9,), np.int32)
    fields[6], fields[7], fields[8] = MAJOR, minor, 0


@njit
def argument(frame: Any, index: Any) -> Any:
    """Address of the buffer of an argument."""
    return word(word(frame, _ARGUMENTS), index)


@njit
def result(frame: Any, index: Any) -> Any:
    """Address of the buffer of a result."""
    return word(word(frame, _RESULTS), index)


@njit
def number(frame: Any, index: Any) -> Any:
    """A number of the one attribute, an array of float64."""
    attribute = word(word(frame, _ATTRIBUTES), 0)
    return carray(memory(word(attribute, _ARRAY_DATA)), (index + 1,), np.float64)[index]


@njit
def data(buffer: Any) -> Any:
    """Memory of a buffer."""
    return memory(word(buffer, _BUFFER_DATA))


@njit
def length(buffer: Any, axis: Any) -> Any:
    """Length of an axis, counted from the last one: 0."""
    rank = word(buffer, _BUFFER_RANK)
    return word(word(buffer, _BUFFER_DIMENSIONS), rank - 1 - axis)


@njit
def rows_before(buffer: Any, axes: Any) -> Any:
    """Product of the lengths of all axes but the last few."""
    count = 1
    for axis in range(axes, word(buffer, _BUFFER_RANK)):
        count *= length(buffer, axis)
    return count
