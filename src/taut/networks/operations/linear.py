"""Linear maps of every token: a weight and a bias, factors, and fixed terms such as positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from taut._base.rounding import enlarged, plus, times
from taut.networks.operations.setting import Setting
from taut.networks.region import LastLinear, Region, longest
from taut.networks.weight_norms import frobenius, largest, length, spectral

Affine = tuple[torch.Tensor, torch.Tensor | None]  # weight as (outputs, inputs), bias


class LinearOperations(Setting):
    """Wx + b, factors and fixed terms."""

    def linear(
        self,
        x: Region,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        name: str | None = None,
    ) -> Region:
        """Wx + b, the weight laid out as (outputs, inputs).

        Rounding: each output is a sum of d products and a bias and errs by γ_{d+1} of their sizes;
        for all outputs together these are at most ‖W‖_F‖x‖ + ‖b‖.
        """
        self.fits(x, weight.shape[1], "a linear layer")
        constant = spectral(weight)
        fixed = length(bias)
        self.leaf(name, "Linear", constant, "spectral norm", "spectral")
        centre = None
        if x.centre is not None:
            centre = x.centre @ self.tensor(weight).mT
            centre = centre if bias is None else centre + self.tensor(bias)
        largest_sum = plus(times(frobenius(weight), x.length), fixed)
        y = x.moved(
            centre,
            constant,
            plus(times(constant, x.length), fixed),
            self.rounding(x, largest_sum, weight.shape[1] + 1),
            weight.shape[0],
        )
        return y.but(last=LastLinear(x, weight))

    def scale(self, x: Region, factors: torch.Tensor | float, name: str | None = None) -> Region:
        """Each coordinate times its factor. Rounding: a product, and one more in the factor."""
        values = (
            torch.as_tensor(factors, dtype=torch.float64)
            if isinstance(factors, float)
            else self.tensor(factors)
        )
        self.tokens_only(x)
        constant = enlarged(largest(values), 1)
        self.leaf(name, "scale", constant, "largest factor", "spectral")
        centre = None if x.centre is None else x.centre * values
        size = times(constant, x.length)
        return x.moved(centre, constant, size, self.rounding(x, size, 2), x.width)

    def patches(
        self, x: Region, weight: torch.Tensor, bias: torch.Tensor | None, name: str | None = None
    ) -> Region:
        """A convolution whose windows do not overlap: one linear map for each patch of an image.

        The weight is (outputs, channels, height, width). Rounding: that of a linear map.
        """
        size = (weight.shape[2], weight.shape[3])
        flat = weight.flatten(1)
        constant, fixed = spectral(flat), length(bias)
        self.leaf(name, "patches", constant, "spectral norm of a patch", "spectral")
        _, height, width = x.image
        tokens = (height // size[0]) * (width // size[1])
        centre = None
        if x.centre is not None:
            found = nn.functional.conv2d(x.centre, self.tensor(weight), None, stride=size)
            centre = found.flatten(2).transpose(1, 2)
            centre = centre if bias is None else centre + self.tensor(bias)
        sums = plus(times(frobenius(flat), x.length), fixed)
        y = x.moved(
            centre,
            constant,
            plus(times(constant, x.length), fixed),
            self.rounding(x.but(tokens=tokens), sums, flat.shape[1] + 1),
            flat.shape[0],
        )
        return y.but(tokens=tokens, image=())

    def shift(self, x: Region, constant: torch.Tensor) -> Region:
        """Add something fixed, such as embeddings of positions, (..., tokens, width).

        Rounding: one addition, and one more in case the fixed term is itself a sum in float64.
        """
        fixed = self.tensor(constant)
        self.fits(x, fixed.shape[-1], "what is added")
        if fixed.shape[-2] not in (1, x.tokens):
            raise ValueError(
                f"the model has {fixed.shape[-2]} positions for {x.tokens} tokens: shorten the "
                "inputs (--max-length on the command line)"
            )
        centre = None if x.centre is None else x.centre + fixed
        far = float(longest(fixed.reshape(1, -1, fixed.shape[-1]))[0])
        size = plus(x.length, far)
        return x.moved(centre, 1.0, size, self.rounding(x, size, 1), x.width)


def affine(module: Any) -> Affine:
    """Weight as (outputs, inputs) and bias of a Linear or of GPT-2's transposed Conv1D."""
    kind: Any = type_before_parametrizations(module)
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return module.weight.mT, module.bias
    if not isinstance(module, nn.Linear) or kind.forward is not nn.Linear.forward:
        raise TypeError(f"expected a plain Linear or Conv1D, got {kind.__name__}")
    return module.weight, module.bias


def applied(run: Setting, map_: Affine, x: torch.Tensor) -> torch.Tensor:
    """Wx + b of every token, in float64."""
    y = x @ run.tensor(map_[0]).mT
    return y if map_[1] is None else y + run.tensor(map_[1])
