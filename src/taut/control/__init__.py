"""Control: attention while a model is trained.

:class:`Monitor` measures every attention softmax from time to time, without changing the training.
:mod:`taut.control.huggingface` and :mod:`taut.control.lightning` have callbacks that run it in
their trainers. Needs PyTorch: ``pip install "taut[torch]"``.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("taut.control needs PyTorch: pip install 'taut[torch]'") from None

from taut.control._alarms import AttentionWarning
from taut.control._monitor import Measurement, Monitor

__all__ = ["AttentionWarning", "Measurement", "Monitor"]
