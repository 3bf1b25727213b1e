"""Capture every attention softmax of a model, without editing it.

A dispatch mode sees all operations that PyTorch runs. A softmax is attention if values are averaged
by its output; this tells it from the routers of mixtures of experts and from classifiers.
Fused attention hides its scores, but shows queries, keys, bias and scale, from which they can be
computed block by block while the model goes on with its fast kernel. What cannot be seen is
reported as missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from taut.models._tracking.model_inputs import told_apart
from taut.models.readable_attention import readable_attention
from taut.models.softmax_capture import SoftmaxCapture, Visit


@contextmanager
def capture(model: nn.Module, visit: Visit) -> Iterator[SoftmaxCapture]:
    """Call ``visit`` for every softmax of attention that the model runs meanwhile.

    The tensors are the model's own, so a visitor must copy what it wants to keep. The attention
    implementation, hooks and switches are restored afterwards, also after an error.
    """
    plain: Any = getattr(model, "_orig_mod", model)  # inside a compiled model
    for name, module in plain.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"the submodule {name} is scripted and" if name else "a scripted model"
            raise TypeError(f"{what} cannot be watched; give the one it was made from")
    capturing = SoftmaxCapture(visit, plain)
    with ExitStack() as stack:
        for name, module in plain.named_modules():
            enter, leave = _steps(capturing, name)
            stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        stack.enter_context(readable_attention(plain))
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(capturing.forget)
        stack.enter_context(capturing)
        yield capturing


def real_rows(capturing: SoftmaxCapture, output: torch.Tensor) -> torch.Tensor | None:
    """Which rows of an output of the model are not padding; None if none is."""
    origin = capturing.origins.of(output)
    if origin is None:
        return None
    rows = origin.along(-1)
    return capturing.inputs.real(rows.sample, rows.token)


def _steps(capturing: SoftmaxCapture, name: str) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Hooks that note which module runs, and the arguments of the whole model."""

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        capturing.enter(name)
        if name or len(capturing.path) > 2:  # a model may also call itself, on parts of its input
            return None
        args = told_apart(args)
        kwargs = told_apart(kwargs, args)
        capturing.inputs.begin(module, args, kwargs)
        return args, kwargs

    def leave(*_: Any) -> None:
        capturing.leave()

    return enter, leave
