"""Control: keep attention from becoming too sensitive while a model is trained.

:func:`constrain` adds S4's orthogonality penalties, :class:`Projection`, :class:`QKClip` and
:class:`SigmaReparametrisation` act on the weights, :class:`SoftCap` on the scores, and
:class:`LocalConstant` on the softmaxes themselves. :class:`CosineAttention` and
:class:`L2Attention` are attention layers with a Lipschitz constant; :func:`swap_attention` puts
them into a model. :class:`Monitor` measures attention from time to time without changing the
training. Needs PyTorch, the extra ``torch``.
"""

from taut._optional import needing as _needing

with _needing("taut.control needs PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from taut.control._alarms import AttentionWarning
from taut.control._capped import CappedAttention
from taut.control._cosine import CosineAttention
from taut.control._find import Block, find_blocks
from taut.control._l2 import L2Attention
from taut.control._local_constant import LocalConstant
from taut.control._monitor import Measurement, Monitor
from taut.control._orthogonality import Orthogonality, Verified, constrain
from taut.control._projection import Projection, Sigma
from taut.control._qk_clip import Clipped, QKClip
from taut.control._reparametrise import SigmaReparametrisation
from taut.control._soft_cap import Capped, SoftCap
from taut.control._swap import Swapped, swap_attention
from taut.control._weights import Weight

__all__ = [
    "AttentionWarning",
    "Block",
    "Capped",
    "CappedAttention",
    "Clipped",
    "CosineAttention",
    "L2Attention",
    "LocalConstant",
    "Measurement",
    "Monitor",
    "Orthogonality",
    "Projection",
    "QKClip",
    "Sigma",
    "SigmaReparametrisation",
    "SoftCap",
    "Swapped",
    "Verified",
    "Weight",
    "constrain",
    "find_blocks",
    "swap_attention",
]
