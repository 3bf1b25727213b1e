"""What must hold of a module's weights before anything is said about it."""

from __future__ import annotations

import torch
from torch import nn

from taut.torch._domain import At, Domain


def workplace(module: nn.Module) -> torch.device:
    """Where to compute: with the weights, or on the CPU if they are on several devices.

    Weights that are not there, not numbers or not finite are refused by name.
    """
    devices = set()
    for name, weight in [*module.named_parameters(), *module.named_buffers()]:
        if weight.device.type == "meta":
            raise ValueError(f"{name} is on the meta device: load the weights first")
        if weight.is_complex():
            raise TypeError(f"{name} is complex; certificates are for real networks")
        if weight.is_quantized or weight.dtype in (torch.int8, torch.uint8):
            raise TypeError(
                f"{name} is quantised ({weight.dtype}); certify the network with its weights "
                "dequantised"
            )
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise ValueError(f"{name} contains NaN or infinity: nothing can be said about it")
        devices.add(weight.device)
    if len(devices) != 1 or next(iter(devices)).type == "mps":  # which has no float64
        return torch.device("cpu")
    return devices.pop()


def precision(module: nn.Module, domain: Domain) -> float:
    """Precision in which the module runs: eps of its coarsest weights, or of the input."""
    kinds = {w.dtype for w in module.parameters() if w.is_floating_point()}
    if not kinds:
        kinds = {domain.inputs.dtype if isinstance(domain, At) else torch.float32}
    if any(_single(inner) for inner in module.modules()):
        kinds.add(torch.float32)
    return max(torch.finfo(kind).eps for kind in kinds)


def _single(module: nn.Module) -> bool:
    """Whether transformers computes something in float32 here, whatever the weights are in.

    Its RMSNorms do, and some softmaxes of the eager attention.
    """
    kind = type(module)
    if not kind.__module__.startswith("transformers."):
        return False
    config = getattr(module, "config", None)
    eager = getattr(config, "_attn_implementation", None) == "eager"
    return eager or kind.__name__.endswith("RMSNorm") or kind.__name__ == "T5LayerNorm"


def runs_in(module: nn.Module) -> tuple[torch.dtype, torch.device]:
    """Type and device of what the module takes: those of its first weight."""
    for weight in module.parameters():
        if weight.is_floating_point():
            return weight.dtype, weight.device
    return torch.float32, torch.device("cpu")
