"""Control: keep attention from becoming too sensitive while a model is trained.

Every :class:`Constraint` has the same verbs: ``start``, ``penalty``, ``after_step``, ``verify``,
``stop`` and ``bake``. :class:`Orthogonality` and :class:`LocalConstant` add penalties to the loss,
:class:`Projection` and :class:`QKClip` change the weights after a step, and
:class:`SigmaReparametrisation` and :class:`SoftCap` are parts of the model.
:class:`CosineAttention` and :class:`L2Attention` are attention layers with a Lipschitz constant;
:func:`swap_attention` puts them into a model. :func:`cap` limits the singular values of matrices.
:class:`Monitor` measures attention from time to time without changing the training.
:class:`HuggingFaceConstraints`, :class:`LightningConstraints` and others are callbacks for
trainers. Needs PyTorch, the extra ``torch``.
"""

from typing import TYPE_CHECKING, Any

from taut._base.optional import needing as _needing

with _needing("taut.control needs PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from taut.control import callbacks as _callbacks
from taut.control.constraint import Constraint
from taut.control.constraints.capped_matrix import cap
from taut.control.constraints.local_constant import LocalConstant
from taut.control.constraints.orthogonality import Orthogonality
from taut.control.constraints.projection import Projection
from taut.control.constraints.qk_clip import QKClip
from taut.control.constraints.sigma_reparametrisation import SigmaReparametrisation
from taut.control.constraints.soft_cap import SoftCap
from taut.control.layers.capped import CappedAttention
from taut.control.layers.cosine import CosineAttention
from taut.control.layers.l2 import L2Attention
from taut.control.layers.swap import swap_attention
from taut.control.layers.swapped import Swapped
from taut.control.lipschitz import rules as _rules  # noqa: F401  (enters them in the register)
from taut.control.lipschitz.convert import lipschitz_like
from taut.control.lipschitz.limits import WeightLimits
from taut.control.lipschitz.transformer import LipschitzTransformer
from taut.control.monitor.alarms import AttentionWarning
from taut.control.monitor.gradient_alarm import GradientAlarm
from taut.control.monitor.monitor import Measurement, Monitor
from taut.control.verified import Verified
from taut.models import Block, Weight, find_blocks

if TYPE_CHECKING:
    from taut.control.callbacks import (
        HuggingFaceConstraints,
        HuggingFaceMonitor,
        LightningConstraints,
        LightningMonitor,
    )

__all__ = [
    "AttentionWarning",
    "Block",
    "CappedAttention",
    "Constraint",
    "CosineAttention",
    "GradientAlarm",
    "HuggingFaceConstraints",
    "HuggingFaceMonitor",
    "L2Attention",
    "LightningConstraints",
    "LightningMonitor",
    "LipschitzTransformer",
    "LocalConstant",
    "Measurement",
    "Monitor",
    "Orthogonality",
    "Projection",
    "QKClip",
    "SigmaReparametrisation",
    "SoftCap",
    "Swapped",
    "Verified",
    "Weight",
    "WeightLimits",
    "cap",
    "find_blocks",
    "lipschitz_like",
    "swap_attention",
]


def __getattr__(name: str) -> Any:
    """Import the callbacks on first use."""
    if name in _callbacks.__all__:
        return getattr(_callbacks, name)
    raise AttributeError(f"module 'taut.control' has no attribute {name!r}")
