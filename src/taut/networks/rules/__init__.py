"""Rules: which operations a module is made of, one family of modules a file.

Importing this package enters all of them in the register.
"""

from taut.networks.onnx_files import rule  # noqa: F401
from taut.networks.rules import (  # noqa: F401
    bart,
    controlled,
    decoders,
    described,
    encoder_decoder,
    encoders,
    hugging_face,
    mixtures,
    t5,
    torch_attention,
    torch_layers,
    torch_transformer,
    vision,
)
