"""What must hold of a module before anything is said about it: its weights, and no hooks."""

from __future__ import annotations

import torch
from torch import nn

from taut.networks.inherited_methods import replaced_methods

_KINDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_module(module: nn.Module) -> None:
    """Refuse weights that are missing, quantised or not finite, and modules with hooks, by name."""
    for name, inner in module.named_modules():
        _check_unchanged(name or type(inner).__name__, inner)
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


def _check_unchanged(name: str, module: nn.Module) -> None:
    """Refuse a module that may do something else than its class says."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    # transformers records hidden states and accelerate moves tensors by hooks that change nothing
    if any(not str(hook.__module__).startswith(("transformers.", "accelerate.")) for hook in hooks):
        raise ValueError(
            f"{name} has forward hooks, which may change what it computes: remove them"
        )
    # accelerate wraps forward to move inputs between devices, and leaves this mark
    replaced = replaced_methods(module)
    if replaced and not (replaced == ["forward"] and hasattr(module, "_hf_hook")):
        raise ValueError(f"the {replaced[0]} of {name} was replaced: no rule knows what it does")
    if module.training and hasattr(module, "parametrizations"):
        raise ValueError(
            f"the weights of {name} may change when they are read in training mode: module.eval()"
        )
