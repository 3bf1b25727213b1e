"""Mixtures of experts: a router weighs the outputs of several maps, all of them or the best few."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch

from taut._base.rounding import EPS, Numbers, enlarged, hypotenuse, plus, times, up
from taut.networks.operations.setting import Setting
from taut.networks.region import Region
from taut.networks.rounding_error import RoundingError
from taut.networks.weight_norms import host, length

Expert = Callable[[Region, int], Region]
SINGLE = 2.0**-23  # precision in which routers compute their weights, whatever the model's is
VISIBLE = 80.0  # in single precision e^−80 is not yet rounded away


class Routing(NamedTuple):
    """How the tokens of every sample are weighed.

    Attributes
    ----------
    chosen
        Which experts each token of the centre is sent to, (batch, tokens, experts); None if the
        centre is not known.
    weights
        The weights of all experts there, 0 for those that are not chosen.
    fixed
        For each sample, whether no token of the region can be sent to other experts.
    """

    chosen: torch.Tensor | None
    weights: torch.Tensor | None
    fixed: np.ndarray[tuple[int], np.dtype[np.bool_]]


class MixtureOperations(Setting):
    """Experts, weighed by a router."""

    def mixture(
        self,
        x: Region,
        router: torch.Tensor,
        expert: Expert,
        *,
        top: int,
        among_chosen: bool = True,
        name: str | None = None,
    ) -> Region:
        """Σ pₑ(x)·Eₑ(x) over the ``top`` experts with the largest logits Wx (theorem mixture).

        Parameters
        ----------
        x
            The tokens.
        router
            W, a row for each expert.
        expert
            Makes the region of an expert, of which the number is given, from that of the tokens.
            Experts read every token by itself.
        top
            How many experts a token is sent to; all of them is soft routing.
        among_chosen
            Whether the weights are a softmax of the chosen logits, or of all.
        name
            Name in the tree, if this is only a part of the module.

        Notes
        -----
        Where a token may be sent to other experts than at the centre, the map may jump and the
        constant is infinite. It is refused for all inputs, where it does jump.

        Rounding: logits err by e = γ_{d+1}|w||x|, and weights by factors within e^{±θ},
        θ = 2e + γ_{experts+8}, in single precision at best. Sums err by γ_{top+2}. Routers choose
        by these weights: the order of two is certain if their logits differ by 16u(|w||x| + 2)
        more, u = 2^−24. Both are rounded to single precision, as is their distance from the
        largest, which is 2|w||x| at most, exponentials err by 8u and quotients by u; and e^−80 or
        more does not underflow.
        """
        self.fits(x, router.shape[1], "a router")
        many = len(router)
        if x.centre is None and top < many:
            raise ValueError(
                f"a mixture sends every token to the best {top} of its {many} experts and jumps "
                "where two of them are equally good: it has no Lipschitz constant on all inputs. "
                "Certify it at inputs, or near them (taut.At), where the experts do not change"
            )
        apart = _distances(router)
        routing = self._routing(x, router, top, among_chosen, apart)
        needed: Iterable[int] = range(many)
        if routing.chosen is not None and routing.fixed.all():
            needed = routing.chosen.flatten(0, 1).any(dim=0).nonzero().flatten().tolist()
        alone = x.but(lip=np.ones_like(x.lip))
        parts = {index: expert(alone, index) for index in needed}
        largest = np.max([part.lip for part in parts.values()], axis=0)
        size = np.max([part.length for part in parts.values()], axis=0)
        turn = np.where(routing.fixed, times(0.5, float(apart.max()), size), np.inf)
        constant = plus(largest, turn)
        still = "routing does not change" if routing.fixed.all() else "routing may change"
        self.leaf(name, "mixture", constant, f"largest expert and router; {still}", "mixture")
        rounding = self._mixture_rounding(x, router, size, top)
        errors, drifts = ([getattr(p, a) for p in parts.values()] for a in ("err", "drift"))
        return x.but(
            width=next(iter(parts.values())).width,
            lip=times(x.lip, constant),
            err=plus(hypotenuse(*errors), times(turn, x.err), rounding.executed),
            drift=rounding.after(plus(hypotenuse(*drifts), times(turn, x.drift)), size),
        ).placed(_weighed(routing, parts), times(x.radius, constant), size)

    def _routing(
        self, x: Region, router: torch.Tensor, top: int, among_chosen: bool, apart: torch.Tensor
    ) -> Routing:
        """The experts at the centre, and whether they are the same everywhere near it."""
        many, batch = len(router), len(x.length)
        if x.centre is None:
            return Routing(None, None, np.ones(batch, dtype=bool))
        logits = x.centre @ self.tensor(router).mT
        chosen = torch.zeros_like(logits, dtype=torch.bool)
        chosen.scatter_(-1, logits.topk(min(top, many), dim=-1).indices, True)
        among = logits.masked_fill(~chosen, -torch.inf) if among_chosen else logits
        weights = torch.softmax(among, dim=-1) * chosen
        # A logit less another moves by the distance of their rows for each unit of the token. The
        # network as executed must choose the same experts, so that its errors count too.
        far = plus(x.away, x.err)
        longest = times(max(length(row) for row in router), x.length)
        lost = times(4 * (EPS + self.eps) * (x.width + 4), longest)
        if self.eps:  # it compares weights in single precision, not logits
            lost = plus(lost, times(SINGLE, plus(times(8.0, longest), 16.0)))
        fixed = np.ones(batch, dtype=bool)
        for b in range(batch):
            gap = logits[b, :, :, None] - logits[b, :, None, :]
            between = chosen[b, :, :, None] & ~chosen[b, :, None, :]
            moved = apart.to(gap) * enlarged(float(far[b]), 4) + float(lost[b])
            same = gap > moved
            if self.eps:  # a chosen weight that is rounded to 0 is not larger than the others
                deepest = (gap - moved).amin(dim=-1, keepdim=True)
                same &= deepest > -VISIBLE
            fixed[b] = bool(same.masked_fill(~between, True).all())
        return Routing(chosen, weights, fixed)

    def _mixture_rounding(
        self, x: Region, router: torch.Tensor, size: Numbers, top: int
    ) -> RoundingError:
        logit = times(max(length(row) for row in router), x.length)

        def weighed(eps: float) -> Numbers:
            doubt = plus(times(2.0, x.width + 2, logit), len(router) + 8)
            changed = np.minimum(up(up(np.expm1(np.minimum(times(eps, doubt), 700.0)))), 2.0)
            return times(size, plus(changed, times(eps, top + 2)))

        found = self.rounding_by(x, weighed)
        if not self.eps:
            return found
        single = self.rounding_by(x, lambda eps: weighed(max(eps, SINGLE)))
        return RoundingError(single.executed, found.centre, found.limit)


def _distances(router: torch.Tensor) -> torch.Tensor:
    """How far the rows of a router are from each other, from above."""
    rows = router.detach().double()
    found = torch.linalg.vector_norm(rows[:, None] - rows, dim=-1)
    return torch.from_numpy(enlarged(host(found), rows.shape[1] + 8))


def _weighed(routing: Routing, parts: dict[int, Region]) -> torch.Tensor | None:
    """The centre: the experts that are needed, by their weights."""
    if routing.weights is None:
        return None
    total: torch.Tensor | None = None
    for index, part in parts.items():
        if part.centre is None:
            return None
        own = routing.weights[..., index, None] * part.centre
        total = own if total is None else total + own
    return total
