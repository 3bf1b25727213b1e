"""What must hold of a module's weights before anything is said about it."""

from __future__ import annotations

import torch
from torch import nn

from taut.torch._domain import At, Domain

_KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def workplace(module: nn.Module) -> torch.device:
    """Where to compute: with the weights, or on the CPU if they are on several devices.

    Weights that are not there, not numbers or not finite are refused by name.
    """
    for name, inner in module.named_modules():
        _unchanged(name or type(inner).__name__, inner)
    devices = set()
    for name, weight in module.named_parameters():
        if weight.device.type == "meta":
            raise ValueError(f"{name} is on the meta device: load the weights first")
        if weight.dtype not in _KINDS:
            raise TypeError(
                f"{name} is of type {weight.dtype}; certificates are for float16, bfloat16, "
                "float32 and float64: dequantise it first"
            )
        # smallest and largest in one pass; both are NaN if any entry is
        if weight.numel() and not all(map(torch.isfinite, weight.detach().aminmax())):
            raise ValueError(f"{name} contains NaN or infinity: nothing can be said about it")
        devices.add(weight.device)
    if len(devices) != 1 or next(iter(devices)).type == "mps":  # which has no float64
        return torch.device("cpu")
    return devices.pop()


def _unchanged(name: str, module: nn.Module) -> None:
    """Refuse what makes a module do something else than its class says."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    # transformers records hidden states and accelerate moves tensors by hooks that change nothing
    if any(not str(hook.__module__).startswith(("transformers.", "accelerate.")) for hook in hooks):
        raise ValueError(
            f"{name} has forward hooks, which may change what it computes: remove them"
        )
    # accelerate wraps forward to move inputs between devices, and leaves this mark
    if "forward" in module.__dict__ and not hasattr(module, "_hf_hook"):
        raise ValueError(f"the forward of {name} was replaced: no rule knows what it does")
    if module.training and hasattr(module, "parametrizations"):
        raise ValueError(
            f"the weights of {name} may change when they are read in training mode: module.eval()"
        )


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


def runs_in(module: nn.Module, domain: Domain) -> tuple[torch.dtype, torch.device]:
    """Type and device of what the module takes: those of its first weight, or of the input."""
    for weight in module.parameters():
        return weight.dtype, weight.device
    if isinstance(domain, At):
        return domain.inputs.dtype, domain.inputs.device
    return torch.float32, torch.device("cpu")
