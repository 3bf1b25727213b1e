"""Search: everything that is tried to decide a property, in order, and what is known of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from taut._base.rounding import EPS
from taut.networks.propagation.engine import Engine, OutOfTimeError
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.node import Node, UnboundedError
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.slopes import below
from taut.networks.question import Question
from taut.networks.verification.condensed import Condensed, TooManyError
from taut.networks.verification.counterexample import find_counterexample, violation
from taut.networks.verification.property import Property
from taut.networks.verification.root import bound_root
from taut.networks.verification.split_bounds import Branches
from taut.networks.verification.state import State, StateFile
from taut.networks.verification.tree import Tree

SAVE_EVERY = 10.0  # seconds


class Search:
    """Attack, bound, branch; until the property is decided or time is up.

    Attributes
    ----------
    state
        What is known so far.
    waiting
        How many branches of the clause in hand are left to split.
    note
        Why nothing more can be done, if so.
    """

    def __init__(
        self, question: Question, wanted: Property, inputs: InputSet, file: StateFile,
        deadline: float,
    ) -> None:  # fmt: skip
        self.question, self.wanted, self.inputs, self.file = question, wanted, inputs, file
        self.deadline = deadline
        kept = file.read()
        self.state = kept or State(np.full(wanted.clauses, -math.inf))
        self._begin = time.monotonic() - self.state.seconds
        self._saved = time.monotonic()
        self.waiting, self.note = 0, ""

    @property
    def proved(self) -> int:
        """How many clauses are proved."""
        return int((self.state.lower > 0).sum())

    @property
    def decided(self) -> bool:
        """Whether nothing is left to do."""
        return self.state.example is not None or self.proved == self.wanted.clauses

    @property
    def seconds(self) -> float:
        """Time that was spent, in earlier runs too."""
        return time.monotonic() - self._begin

    def save(self) -> None:
        """Keep the state."""
        self.state.seconds = self.seconds
        self.file.write(self.state)
        self._saved = time.monotonic()

    def attack(self, seed: int) -> None:
        """Look for a counterexample, once."""
        if self.decided or self.state.attacked:
            return
        found = find_counterexample(self.question, self.wanted, self.inputs, seed, self.deadline)
        if found is not None:
            self.state.example = found.double().cpu().numpy()
        self.state.attacked = time.monotonic() <= self.deadline

    def bound(self, tape: list[Node], eps: float, told: Callable[[], object]) -> None:
        """Bound all clauses, and branch where that does not suffice."""
        if self.decided:
            return
        try:
            engine = Engine(
                tape, self.inputs, eps, deadline=self.deadline, checkpoints=False, quick=True
            )
            plain = self._plain(engine)
            self.state.lower = np.maximum(self.state.lower, plain)
            self.state.bounded = max(self.state.bounded, len(plain))
            told()
            if self.decided:
                return
            relus = Condensed(engine)
            # the nearest to being proved first
            for clause in np.argsort(-self.state.lower).tolist():
                if self.state.lower[clause] <= 0 and not self._branch(relus, clause, told):
                    return
        except OutOfTimeError:
            return
        except UnboundedError:
            self.note = "A relaxation is infinite within this radius: more time does not help"
        except TooManyError:
            self.note = "Too many ReLUs are undecided for their signs to be branched on"

    def _plain(self, engine: Engine) -> np.ndarray:
        """Bounds of all clauses, by their best function, without any choice."""
        wanted, last = self.wanted, engine.nodes[-1]
        terms = (wanted.rows * last.centre).flatten(1)
        terms = torch.cat((terms, -wanted.above[:, None]), dim=1)
        value = terms.sum(dim=1) - terms.abs().sum(dim=1) * (8 * EPS * terms.shape[1])
        low = value + below(engine, [(last, Rows(wanted.rows))])
        each = [low[wanted.clause == c].max() for c in range(wanted.clauses)]
        found = torch.stack(each)
        return torch.where(found.isnan(), -torch.inf, found).cpu().numpy()

    def _branch(self, relus: Condensed, clause: int, told: Callable[[], object]) -> bool:
        """Whether a clause could be proved."""
        chosen = self.wanted.clause == clause
        state = self.state
        tree = Tree(relus, bound_root(relus, self.wanted.rows[chosen], self.wanted.above[chosen]))
        ids = _names(relus)
        if state.clause == clause and np.array_equal(state.relus, ids) and state.branches:
            tree.waiting = Branches(
                *(torch.from_numpy(part).to(relus.low) for part in state.branches)
            )
        bounded, state.clause, state.relus = state.bounded - tree.bounded + 1, clause, ids
        while len(tree.waiting) and not len(tree.stuck):
            self._note_down(tree, clause, bounded)
            told()
            if time.monotonic() > self._saved + SAVE_EVERY:
                self.save()
            if time.monotonic() > self.deadline:
                return False
            tree.split()
            if self._refuted(tree.corners):
                return False
        self._note_down(tree, clause, bounded)
        if len(tree.stuck):
            self.note = (
                "The relaxation of attention and other operations is too wide even where all signs "
                "of ReLUs are known: more time does not help"
                if relus.counts
                else "No ReLU is undecided, so that there is nothing to branch on"
            )
            return False
        state.clause, state.branches = -1, ()
        return True

    def _note_down(self, tree: Tree, clause: int, bounded: int) -> None:
        """Enter what a tree knows into the state."""
        state = self.state
        state.lower[clause] = max(tree.lower, float(state.lower[clause]))
        state.bounded = bounded + tree.bounded
        left = tree.waiting.joined(tree.stuck)
        state.branches = tuple(part.cpu().numpy() for part in left.parts)
        self.waiting = len(left)

    def _refuted(self, far: torch.Tensor) -> bool:
        """Whether the network violates the property at one of these deviations."""
        (centre,) = self.question.points(1)
        points = centre + far.reshape(len(far), *centre.shape[1:]).to(centre)
        found = violation(self.question, self.wanted, self.inputs, points)
        if found is not None:
            self.state.example = found.double().cpu().numpy()
        return found is not None


def _names(relus: Condensed) -> np.ndarray:
    """The undecided ReLUs, (node, place)."""
    parts = [
        torch.stack((torch.full_like(node.bent, node.index), node.bent), dim=1)
        for node in relus.hinges
    ]
    return torch.cat([torch.zeros(0, 2, dtype=torch.long), *(p.cpu() for p in parts)]).numpy()
