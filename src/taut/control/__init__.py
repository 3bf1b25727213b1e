"""Attention layers with a Lipschitz constant, for training.

:class:`CosineAttention` and :class:`L2Attention` take the place of
``torch.nn.MultiheadAttention`` and say how far their output can move, whatever the input;
:func:`swap_attention` puts them into a model.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise ImportError("taut.control needs PyTorch: pip install 'taut[torch]'") from None

from taut.control._cosine import CosineAttention
from taut.control._l2 import L2Attention
from taut.control._swap import Swapped, swap_attention

__all__ = [
    "CosineAttention",
    "L2Attention",
    "Swapped",
    "swap_attention",
]
