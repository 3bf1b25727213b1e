"""L2 attention: at given tokens, near to them, and for all tokens."""

from __future__ import annotations

import numpy as np
import torch

from taut._base.rounding import EPS, Numbers, hypotenuse, plus, times, up
from taut.networks.operations.attention_mask import visible
from taut.networks.operations.distance_near_input import distance_centre, near_distances
from taut.networks.operations.distance_on_ball import distances_on_ball
from taut.networks.operations.distance_parameters import (
    DistanceHeads,
    DistanceNorms,
    norms_of_distances,
)
from taut.networks.operations.linear import applied
from taut.networks.operations.setting import Setting
from taut.networks.region import Region, longest
from taut.networks.rounding_error import RoundingError


class DistanceOperations(Setting):
    """Multi-head attention that compares tokens by their distance."""

    def distance_attention(
        self,
        x: Region,
        heads: DistanceHeads,
        *,
        mask: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        name: str | None = None,
    ) -> Region:
        """L2 self-attention (theorems l2-attention and, on tokens of bounded length, l2-ball).

        Parameters
        ----------
        x
            The tokens.
        heads
            The weights.
        mask
            As in :meth:`attention`. Every token sees itself, whatever the mask says.
        bias
            Fixed and finite term of the scores, (heads, tokens, tokens).
        name
            Name in the tree, if the attention is only a part of its module.
        """
        self.fits(x, heads.query[0].shape[1], "L2 attention")
        norms = norms_of_distances(heads)
        seen = None
        if mask is not None:
            itself = torch.eye(x.tokens, dtype=torch.bool, device=self.device)
            shape = (len(x.length), heads.heads, x.tokens, x.tokens)
            seen = visible(mask.to(self.device) | itself, shape)
        # With a term of the scores a token may see others better than itself.
        anywhere = np.inf if bias is not None else heads.everywhere(x.tokens, self.norm)
        fixed = None if bias is None else self.tensor(bias)
        ball = distances_on_ball(x, heads, norms, seen, fixed, self.norm)
        constant = np.minimum(ball, anywhere)
        theorems = ["l2-attention", "l2-ball"] if np.isfinite(ball).any() else ["l2-attention"]
        inner = plus(times(norms.queries, x.length[:, None]), norms.query_biases)
        each = plus(times(norms.maps, inner), norms.value_biases)
        centre, where = None, "for all tokens"
        if x.centre is not None:
            near, centre, known = self._near(x, heads, norms, seen, fixed)
            constant, where = np.minimum(constant, near), "covariances under the weights"
            each = np.minimum(each, known)
        self.leaf(name, "l2 attention", constant, where, *theorems)
        far = hypotenuse(*each.T)
        size = plus(times(norms.output, far), norms.output_bias)
        term = 0.0 if fixed is None else float(fixed.abs().max())
        rounding = self._rounding(x, heads, norms, inner, np.atleast_1d(far), term)
        return x.moved(centre, constant, size, rounding, heads.output[0].shape[0])

    def _near(
        self,
        x: Region,
        heads: DistanceHeads,
        norms: DistanceNorms,
        seen: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> tuple[Numbers, torch.Tensor, Numbers]:
        """Constants near the centre, the centre of the output, and the longest value of a head."""
        assert x.centre is not None
        u = applied(self, heads.query, x.centre)
        u = u.reshape(*u.shape[:-1], heads.heads, -1).transpose(1, 2)
        values = heads.values(u)
        error = times(EPS * (x.width + 1), plus(times(norms.query_size, x.length),
                                                norms.query_biases.max()))  # fmt: skip
        around = heads.around(self.norm)
        constants, outputs, sizes = [], [], []
        for b in range(len(u)):
            worst, row, size = 0.0, [], []
            for h in range(heads.heads):
                of_head = None if seen is None else seen[b, h if seen.shape[1] > 1 else 0]
                term = None if bias is None else bias[h]
                found = distance_centre(u[b, h], heads.score_scale, of_head, term)
                near = float(plus(times(norms.queries[h], x.away[b]), error[b]))
                if not self.dry:
                    worst = max(worst, near_distances(found, near, self.norm))
                row.append(found.weights @ values[b, h])
                far = plus(float(longest(values[b, h][None])[0]), times(norms.maps[h], near))
                lost = times(EPS * (x.width + 2 * heads.width + 8), norms.map_sizes[h],
                             float(longest(u[b, h][None])[0]))  # fmt: skip
                size.append(plus(far, lost))
            constants.append(times(around, worst))
            outputs.append(torch.cat(row, dim=-1))
            sizes.append(size)
        merged = applied(self, heads.output, torch.stack(outputs))
        return np.array(constants), merged, np.array(sizes)

    def _rounding(
        self,
        x: Region,
        heads: DistanceHeads,
        norms: DistanceNorms,
        inner: Numbers,
        far: Numbers,
        term: float,
    ) -> RoundingError:
        """Error of the output at exact tokens.

        Queries err by e = γ_{d+1}(‖Wq‖_F|x| + |b|), so a squared distance by 8|u|e and by γ_{w+8}
        of 4|u|², and the logarithm of a weight by 2α times that, by γ_{n+8}, and by six units of a
        fixed term, α being the factor of the scores: with θ for all of it, a mean value changes by
        at most (e^θ − 1) of the longest value, never by more than twice that. Values err by the
        norm of their map times e, and by γ_{d+2w+8} of the Frobenius norms of its two factors times
        |u|; averages by γ_{2n+16} of the longest; the last map is linear.
        """
        alpha = heads.score_scale
        long = inner.max(axis=1)
        plain = plus(times(norms.query_size, x.length), norms.query_biases.max())
        query = times(x.width + 1, plain)
        doubt = plus(
            times(16.0, alpha, long, query),
            times(8.0 * (heads.width + 8), alpha, long, long),
            x.tokens + 8 + 8 * term,
        )

        def weights(eps: float) -> Numbers:
            moved = times(eps, doubt, plus(1.0, times(eps, x.width + 1)))
            changed = np.minimum(up(up(np.expm1(np.minimum(moved, 700.0)))), 2.0)
            return times(norms.output, changed, far)

        own = plus(
            times(float(hypotenuse(*norms.maps)), query),
            times(x.width + 2 * heads.width + 8, float(hypotenuse(*norms.map_sizes)), long),
        )
        last = plus(times(norms.output_size, far), norms.output_bias)
        return (
            self.rounding_by(x, weights)
            + self.rounding(x, times(norms.output, own), 1)
            + self.rounding(x, times(norms.output, far), 2 * x.tokens + 16)
            + self.rounding(x, last, heads.output[0].shape[1] + 1)
        )
