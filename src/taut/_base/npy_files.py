"""Arrays in .npy files that may be anybody's: never a pickle, never more than the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def read_npy(file: Path) -> Array:
    """The array in a file; a ValueError with the file's name says why there is none."""
    with file.open("rb") as stream:
        if stream.read(6) != b"\x93NUMPY":  # numpy.load would also try archives and pickles
            raise ValueError(f"{file} is not an .npy file; write one with numpy.save")
    try:
        # A map of the file: an array that claims to be larger than the file takes no memory first.
        found = np.array(np.load(file, mmap_mode="r", allow_pickle=False))
    except Exception as error:  # a damaged header raises whatever its text makes Python raise
        why = str(error) or type(error).__name__
        if "object" in why:
            why = "it holds Python objects, which are not loaded"
        elif "mmap" in why:
            why = "it is cut short: its header claims more numbers than there are"
        raise ValueError(
            f"{file} cannot be read as an array of numbers: {why.splitlines()[0]}"
        ) from None
    return found
