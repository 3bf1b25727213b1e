"""Tree: branch and bound over the signs of ReLUs, for one clause of a property."""

from __future__ import annotations

import torch

from taut.networks.verification.condensed import Condensed
from taut.networks.verification.root import Root
from taut.networks.verification.split_bounds import Branches, SplitBounds

FIRST = 20  # gradient steps at the root, with tighter intervals
LAST = 200  # where all signs are known
CORNERS = 4  # inputs that are tried in the network, of each batch
SMALL = 1e-12  # a bound of which no more is known than that it is above 0
STEPS = 12  # gradient steps for each branch
BATCH = 64  # branches that are split at a time
CANDIDATES = 32  # places that are tried for each split


class Tree:
    """All branches that are not proved yet.

    Attributes
    ----------
    waiting
        Branches that can be split.
    stuck
        Branches without a place to split whose bound is not above 0.
    bounded
        How many branches were bounded so far.
    """

    def __init__(self, relus: Condensed, root: Root) -> None:
        self.relus, self.root = relus, root
        self.bounds = SplitBounds(relus)
        self.bounded = 1
        self.corners = root.slopes.new_zeros(0, root.function.linear.shape[1])
        nothing = torch.zeros_like(root.slopes)
        lower = root.slopes.new_full((1,), root.lower)
        whole = Branches(nothing, root.slopes, nothing.clone(), lower)
        if root.lower <= 0:
            self.bounds.tighten(root.slopes, FIRST)
            whole.signs = self.bounds.known
            self.bounds.improve(root.function, whole, FIRST)
        self.best = float(whole.lower)
        self.waiting = whole.chosen(~(whole.lower > 0))
        self.stuck = whole.chosen(torch.zeros(0, dtype=torch.long))

    @property
    def lower(self) -> float:
        """Lower bound of the clause on the whole set, a tiny one once it is proved by branches."""
        left = torch.cat((self.waiting.lower, self.stuck.lower))
        return float(left.min()) if len(left) else max(self.best, SMALL)

    def split(self) -> None:
        """Split the branches with the lowest bounds, and bound what comes out."""
        order = self.waiting.lower.argsort()
        now, later = self.waiting.chosen(order[:BATCH]), self.waiting.chosen(order[BATCH:])
        self.waiting = later
        now = self._splittable(now)
        if not len(now):
            return
        halves = children(now, self._places(now)[:, None])
        self.bounds.improve(self.root.function, halves, STEPS)
        self.bounded += len(halves)
        self.waiting = later.joined(halves.chosen(~(halves.lower > 0)))

    def _splittable(self, now: Branches) -> Branches:
        """Those with a free place; the others get more steps, and are stuck if these do not help.

        With all signs known a branch of a ReLU network is a linear program, of which the
        multipliers are the dual: only then more steps are worth it.
        """
        free = (now.signs == 0).any(dim=1)
        if not bool(free.all()):
            last = now.chosen(~free)
            self.bounds.improve(self.root.function, last, LAST)
            self._look(last)
            self.stuck = self.stuck.joined(last.chosen(~(last.lower > 0)))
        return now.chosen(free)

    def _look(self, now: Branches) -> torch.Tensor:
        """Coefficients on the outputs of the ReLUs; the inputs that are worst for some branches."""
        _, coefficients = self.bounds.look(self.root.function, now)
        self.corners = self.relus.engine.inputs.corners(self.bounds.linear[:CORNERS])
        return coefficients

    def _places(self, now: Branches) -> torch.Tensor:
        """Where to split each branch: the best of a few candidates, tried without optimisation."""
        coefficients = self._look(now)
        gain = self.bounds.gains(now, coefficients)
        many = min(CANDIDATES, gain.shape[1])
        candidates = gain.topk(many, dim=1).indices
        found, _ = self.bounds.look(self.root.function, children(now, candidates))
        found = found.reshape(len(now), many, 2).clamp(max=0.0) - now.lower[:, None, None]
        score = found.clamp(min=1e-6).prod(dim=-1)
        score = torch.where(gain.gather(1, candidates) >= 0, score, -1.0)
        return candidates.gather(1, score.argmax(dim=1, keepdim=True))[:, 0]


def children(now: Branches, places: torch.Tensor) -> Branches:
    """Both signs at each of these places, (branches, places): branch by branch, place by place."""
    many = places.shape[1]
    found = now.chosen(torch.arange(len(now)).repeat_interleave(2 * many))
    at = places.flatten().repeat_interleave(2)
    signs = found.signs.clone()
    signs[torch.arange(len(at)), at] = torch.tensor([1.0, -1.0]).to(signs).repeat(len(at) // 2)
    found.signs = signs
    return found
