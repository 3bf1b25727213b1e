"""Versions of the packages that the numbers of an audit depend on."""

from __future__ import annotations

import platform

import numpy as np


def package_versions() -> dict[str, str]:
    """The versions of taut, PyTorch, NumPy, Python and, where it is installed, transformers."""
    import torch

    import taut

    found = {"taut": taut.__version__, "torch": torch.__version__, "numpy": np.__version__}
    found["python"] = platform.python_version()
    try:
        import transformers

        found["transformers"] = transformers.__version__
    except ImportError:
        pass
    return found
