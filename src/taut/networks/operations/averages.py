"""Parts of networks that are built to have small constants: averages, balls, sorted pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from taut._base.rounding import plus, times, up
from taut.networks.operations.linear import Affine, LinearOperations
from taut.networks.operations.mlp import MlpOperations
from taut.networks.operations.tokens import TokenOperations
from taut.networks.region import Region
from taut.networks.rounding_error import EXACT
from taut.networks.weight_norms import spectral, spectral_product


class AverageOperations(LinearOperations, MlpOperations, TokenOperations):
    """Averages of a map and its input, projections onto balls, pairs in order."""

    def average(self, x: Region, y: Region, kept: float, passed: float) -> Region:
        """kept·x + passed·y, as in a residual connection that is an average."""
        kept_part, passed_part = self.scale(x, kept, "kept"), self.scale(y, passed, "passed")
        return self.add(kept_part, passed_part)

    def averaged_mlp(
        self,
        x: Region,
        first: Affine,
        function: Any,
        second: Affine,
        kept: float,
        passed: float,
        name: str = "mlp",
    ) -> Region:
        """kept·x + passed·(linear, activation, linear), bounded as one (theorem averaged-mlp).

        With slopes from a to b, c = (a + b)/2 and h = (b − a)/2, the derivative is
        kept·I + passed·c·W₂W₁ and something of norm |passed|·h‖W₂‖‖W₁‖: the first two can cancel.

        The rounding is that of the parts, which the smaller constant leaves as it is.
        """
        whole = self.average(x, self.mlp(x, first, function, second, name), kept, passed)
        act = self.known(function)
        w1, w2 = first[0], second[0]
        middle = (act.low + act.high) / 2
        half = up(max(act.high - middle, middle - act.low))
        ones = torch.eye(x.width, dtype=torch.float64, device=self.device)
        left = torch.cat((kept * ones, passed * middle * self.tensor(w2)), dim=1)
        right = torch.cat((ones, self.tensor(w1)))
        # The factors of the left matrix were rounded, each entry by less than two units.
        off = times(4e-16, plus(abs(kept), times(abs(passed * middle), spectral(w2), spectral(w1))))
        rest = times(abs(passed), half, spectral(w2), spectral(w1))
        constant = plus(spectral_product(left, right), times(off, x.width), rest)
        self.leaf(f"{name} averaged", "mlp", constant, "split slopes, kept", "averaged-mlp")
        return whole.but(
            lip=np.minimum(whole.lip, times(x.lip, constant)),
            radius=np.minimum(whole.radius, times(x.radius, constant)),
        )

    def into_ball(self, x: Region, reach: float, name: str | None = None) -> Region:
        """The nearest tokens of length at most ``reach``: a projection, which is 1-Lipschitz.

        Rounding: a length, a quotient and a product.
        """
        self.tokens_only(x)
        self.leaf(name, "ball", 1.0, "projection onto a ball", "nonexpansive")
        centre = None
        if x.centre is not None:
            far = torch.linalg.vector_norm(x.centre, dim=-1, keepdim=True)
            centre = x.centre * (reach / far.clamp(min=reach))
        size = np.minimum(x.length, reach)
        return x.moved(centre, 1.0, size, self.rounding(x, size, x.width + 8), x.width)

    def sort_pairs(self, x: Region, name: str | None = None) -> Region:
        """The larger and then the smaller entries of pairs, which stand half a width apart.

        A piecewise permutation that is continuous: 1-Lipschitz. Nothing is rounded.
        """
        self.leaf(name, "sorted pairs", 1.0, "a permutation", "nonexpansive")
        centre = None
        if x.centre is not None:
            left, right = x.centre.chunk(2, dim=-1)
            centre = torch.cat((torch.maximum(left, right), torch.minimum(left, right)), dim=-1)
        return x.moved(centre, 1.0, x.length, EXACT, x.width)
