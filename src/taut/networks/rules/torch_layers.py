"""Rules for layers of torch.nn that take every token by itself."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from taut._base.rounding import down, over, plus, times
from taut.networks.interpreter import Interpreter
from taut.networks.operations.normalisation import FixedNorm
from taut.networks.region import Region
from taut.networks.rounding_error import EXACT
from taut.networks.rule_register import register

_POINTWISE = (
    nn.ReLU, nn.ReLU6, nn.Tanh, nn.Hardtanh, nn.Softsign, nn.Softshrink, nn.Tanhshrink, nn.Softplus,
    nn.LogSigmoid, nn.CELU, nn.Sigmoid, nn.Hardsigmoid, nn.Hardswish, nn.SELU, nn.SiLU, nn.Mish,
    nn.GELU, nn.LeakyReLU, nn.ELU, nn.RReLU,
)  # fmt: skip


@register(nn.Linear)
def _linear(run: Interpreter, module: nn.Linear, x: Region) -> Region:
    return run.linear(x, module.weight, module.bias)


@register(nn.Identity, nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout)
def _nothing(run: Interpreter, module: nn.Module, x: Region) -> Region:
    run.steady(module, getattr(module, "p", 0.0))
    run.explain("identity")
    return x


@register(nn.Sequential)
def _sequential(run: Interpreter, module: nn.Sequential, x: Region) -> Region:
    run.explain("chain")
    for name, child in module._modules.items():  # children would name a shared module once
        x = run(child, x, name)
    return x


@register(*_POINTWISE)
def _pointwise(run: Interpreter, module: nn.Module, x: Region) -> Region:
    return run.activation(x, module)


@register(nn.PReLU)
def _prelu(run: Interpreter, module: nn.PReLU, x: Region) -> Region:
    if module.num_parameters != 1:
        raise TypeError("PReLU with several slopes takes channels, not tokens; use one slope")
    return run.activation(x, module)


@register(nn.LayerNorm)
def _layer_norm(run: Interpreter, module: nn.LayerNorm, x: Region) -> Region:
    _last_only(module, x)
    return run.normalise(x, module.weight, module.bias, module.eps, centred=True)


@register(nn.RMSNorm)
def _rms_norm(run: Interpreter, module: nn.RMSNorm, x: Region) -> Region:
    _last_only(module, x)
    epsilon = module.eps
    if epsilon is None:  # torch then takes that of the type it computes in
        if module.weight is None:
            raise ValueError("RMSNorm without eps and weight depends on its input: give it an eps")
        wide = module.weight.dtype if module.weight.dtype == torch.float64 else torch.float32
        epsilon = torch.finfo(wide).eps
    return run.normalise(x, module.weight, None, epsilon, centred=False)


@register(nn.BatchNorm1d, nn.BatchNorm2d)
def _batch_norm(run: Interpreter, module: Any, x: Region) -> Region:
    kind = type(module).__name__
    if module.training or module.running_mean is None:
        raise ValueError(
            f"{kind} takes the statistics of the batch in training mode and without running ones, "
            "so that inputs depend on each other; certify the network that is used: module.eval()"
        )
    shape = x.image if x.image else (x.tokens, x.width)
    channels, spread = module.num_features, [1] * (len(shape) - 1)
    if x.image or (isinstance(module, nn.BatchNorm1d) and x.tokens == channels != 1):
        view = [channels, *spread]  # (channels, length) or an image
    else:
        view = [1, channels]
    if shape[0 if view[0] != 1 else -1] != channels or (not x.image and view[0] == 1 != x.tokens):
        raise ValueError(f"{kind} takes {channels} channels, got inputs of shape {shape}")
    mean, variance = (run.tensor(each) for each in (module.running_mean, module.running_var))
    factor = 1 / (variance + module.eps).sqrt()
    shift = torch.zeros_like(mean)
    if module.weight is not None:
        factor, shift = factor * run.tensor(module.weight), run.tensor(module.bias)
    return run.batch_norm(x, FixedNorm(*(each.reshape(view) for each in (factor, mean, shift))))


def _last_only(module: Any, x: Region) -> None:
    if tuple(module.normalized_shape) != (x.width,):
        raise ValueError(
            f"{type(module).__name__} normalises {tuple(module.normalized_shape)}; a rule exists "
            f"for tokens of their full width, here {x.width}"
        )


@register(nn.Softmax)
def _softmax(run: Interpreter, module: nn.Softmax, x: Region) -> Region:
    run.tokens_only(x)
    if module.dim != -1:
        raise ValueError("a rule exists for softmax along the width of tokens (dim=-1) only")
    run.explain("softmax is 1/2-Lipschitz", "softmax-lp")
    centre = None if x.centre is None else torch.softmax(x.centre, dim=-1)
    # The logarithm of an output errs by a few units of |x|, and by γ of the width for the sum.
    doubt = plus(times(4.0, x.length), x.width + 8)
    return x.moved(centre, 0.5, 1.0, run.rounding(x, doubt, 1), x.width)


@register(nn.AdaptiveAvgPool1d)
def _average(run: Interpreter, module: nn.AdaptiveAvgPool1d, x: Region) -> Region:
    run.tokens_only(x)
    size = module.output_size[0] if isinstance(module.output_size, tuple) else module.output_size
    if size != 1:
        raise ValueError("a rule exists for AdaptiveAvgPool1d(1), the mean over the width, only")
    constant = over(1.0, down(math.sqrt(x.width)))
    run.explain("mean over the width")
    centre = None if x.centre is None else x.centre.mean(dim=-1, keepdim=True)
    return x.moved(centre, constant, x.length, run.rounding(x, x.length, x.width + 1), 1)


@register(nn.AdaptiveMaxPool1d)
def _largest(run: Interpreter, module: nn.AdaptiveMaxPool1d, x: Region) -> Region:
    run.tokens_only(x)
    size = module.output_size[0] if isinstance(module.output_size, tuple) else module.output_size
    if size != 1 or module.return_indices:
        raise ValueError("a rule exists for AdaptiveMaxPool1d(1), the largest number, only")
    run.explain("largest over the width")
    centre = None if x.centre is None else x.centre.amax(dim=-1, keepdim=True)
    return x.moved(centre, 1.0, x.length, EXACT, 1)
