"""Certificates for PyTorch modules and models.

:func:`certify` bounds how far the output of a network moves with its input, on a domain
(:class:`Ball`, :class:`Everywhere`) or at given inputs (:class:`At`); :func:`register` teaches it
new modules.
"""

from taut._optional import needing as _needing

with _needing("taut.torch needs PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from taut.torch import _hf_bart, _hf_decoders, _hf_encoders, _hf_t5, _hf_vision, _nn  # noqa: F401  (rules)
from taut.torch._activations import Activation
from taut.torch._certificate import Certificate
from taut.torch._certify import certify
from taut.torch._classifier import CertifiedRadius, certified_radius
from taut.torch._domain import At, Ball, Everywhere
from taut.torch._heads import HeadNorm, Heads
from taut.torch._local import local_lipschitz
from taut.torch._region import Region
from taut.torch._rules import MissingRuleError, register
from taut.torch._run import Run

__all__ = [
    "Activation",
    "At",
    "Ball",
    "Certificate",
    "CertifiedRadius",
    "Everywhere",
    "HeadNorm",
    "Heads",
    "MissingRuleError",
    "Region",
    "Run",
    "certified_radius",
    "certify",
    "local_lipschitz",
    "register",
]
