"""Versions of the packages that the numbers of a record depend on."""

from __future__ import annotations

import platform

import numpy as np
import torch


def installed_versions() -> dict[str, str]:
    """Versions of taut and of what it computes with."""
    import taut

    found = {"taut": taut.__version__, "torch": torch.__version__, "numpy": np.__version__}
    found["python"] = platform.python_version()
    try:
        import transformers

        found["transformers"] = transformers.__version__
    except ImportError:
        pass
    return found
