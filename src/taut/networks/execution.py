"""How a module runs: on which device, in which type, with which precision."""

from __future__ import annotations

import torch
from torch import nn

from taut._base.domain import At
from taut.networks.domain_points import NetworkDomain
from taut.networks.float32_arithmetic import multiplies_float32_fully


def workplace(module: nn.Module) -> torch.device:
    """Where to compute a certificate: with the weights, or on the CPU if these are apart."""
    devices = {weight.device for weight in module.parameters()}
    if len(devices) != 1 or next(iter(devices)).type == "mps":  # which has no float64
        return torch.device("cpu")
    return devices.pop()


def precision(module: nn.Module, domain: NetworkDomain) -> float:
    """Precision in which the module runs: eps of its coarsest weights, or of the input.

    Without autocast. Where torch may multiply float32 with fewer digits, bfloat16 has the fewest.
    """
    kinds = {w.dtype for w in module.parameters() if w.is_floating_point()}
    if not kinds:
        kinds = {domain.inputs.dtype if isinstance(domain, At) else torch.float32}
    if any(_single(inner) for inner in module.modules()):
        kinds.add(torch.float32)
    if torch.float32 in kinds and not multiplies_float32_fully():
        kinds.add(torch.bfloat16)
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


def runs_in(module: nn.Module, domain: NetworkDomain) -> tuple[torch.dtype, torch.device]:
    """Type and device of what the module takes: those of its first weight, or of the input."""
    for weight in module.parameters():
        return weight.dtype, weight.device
    if isinstance(domain, At):
        return domain.inputs.dtype, domain.inputs.device
    return torch.float32, torch.device("cpu")
