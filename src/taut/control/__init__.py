"""Control: constraints that keep attention from becoming too sensitive while a model is trained.

Needs PyTorch: ``pip install "taut[torch]"``.
"""

from taut.control._find import Block, find_blocks
from taut.control._local_constant import LocalConstant
from taut.control._orthogonality import Orthogonality, Verified, constrain
from taut.control._projection import Projection, Sigma
from taut.control._qk_clip import Clipped, QKClip
from taut.control._reparametrise import SigmaReparametrisation
from taut.control._weights import Weight

__all__ = [
    "Block",
    "Clipped",
    "LocalConstant",
    "Orthogonality",
    "Projection",
    "QKClip",
    "Sigma",
    "SigmaReparametrisation",
    "Verified",
    "Weight",
    "constrain",
    "find_blocks",
]
