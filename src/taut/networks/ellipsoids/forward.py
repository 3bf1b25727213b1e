"""Forward: how a smooth network moves as a whole, as a linear map and ellipsoids around it.

Each operation that is not linear adds an ellipsoid for what it does beyond its derivative. All
ellipsoids of a block are joined where nothing but one node leads on. Rounding is carried along as a
length for each token.
"""

from __future__ import annotations

import math
import time

import torch

from taut._base.rounding import EPS
from taut.networks.ellipsoids.activation_ellipsoid import activation_error, is_gelu
from taut.networks.ellipsoids.attention_ellipsoid import MovedAttention
from taut.networks.ellipsoids.attention_error import attention_error
from taut.networks.ellipsoids.ellipsoid import summed, widened
from taut.networks.ellipsoids.moved_nodes import LARGEST, MovedNodes, Steps
from taut.networks.ellipsoids.norm_ellipsoid import norm_error
from taut.networks.propagation.attention_node import AttentionNode
from taut.networks.propagation.constant_node import ConstantNode
from taut.networks.propagation.engine import UNDERFLOW, OutOfTimeError
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.linear_nodes import FixedNode
from taut.networks.propagation.needed_tokens import find_needed
from taut.networks.propagation.node import Node, UnboundedError
from taut.networks.propagation.norm_nodes import NormNode
from taut.networks.propagation.pointwise_nodes import ActivationNode, ProductNode
from taut.networks.propagation.rows import Rows, heads_apart


def is_smooth(nodes: list[Node]) -> bool:
    """Whether ellipsoids are worth a try: GELU, norm layers, attention and linear maps only."""
    for node in nodes:
        match node:
            case ConstantNode():
                return False
            case ActivationNode() if not is_gelu(node.act):
                return False
            case AttentionNode() if node.softcap is not None or node.p.numel() > LARGEST:
                return False
        if node.centre.numel() > LARGEST:
            return False
    return any(isinstance(node, (NormNode, AttentionNode)) for node in nodes)


class Forward(MovedNodes):
    """A recorded network on a set of inputs; its centres stay where the given input leads.

    Parameters
    ----------
    nodes
        The operations in order; the first is the input.
    inputs
        Where the input can be.
    eps
        Precision of the network as executed; 0 for exact arithmetic.
    deadline
        ``time.monotonic()`` at which to give up.

    Raises
    ------
    UnboundedError
        If an operation has no rule here, is too large, or moves too far.
    """

    def __init__(
        self, nodes: list[Node], inputs: InputSet, eps: float = 0.0, deadline: float = math.inf
    ) -> None:
        super().__init__(nodes, inputs)
        self.unit, self.underflow = EPS + eps, UNDERFLOW if eps else 0.0
        find_needed(nodes)
        last_read = {parent.index: node.index for node in nodes for parent in node.parents}
        read_until = 0
        for node in nodes:
            if time.monotonic() > deadline:
                raise OutOfTimeError
            steps, rounded = self._moved(node)
            self.steps.append(steps)
            self.rounded.append(rounded)
            node.sizes = self.sizes(node, steps) + rounded
            if read_until <= node.index:
                self.join(node)
            if not isinstance(node, FixedNode):
                read_until = max(read_until, last_read.get(node.index, 0))

    def radius(self, rows: torch.Tensor) -> torch.Tensor:
        """How far rows on the last node, (functions, tokens, width), are from their centre."""
        flat = rows.flatten(1)
        found = Rows(rows).weighed(self.rounded[-1])
        for group, steps in self.steps[-1].items():
            moved = flat @ steps.flatten(1).mT
            found = found + (self.inputs.reach(moved) if group == 0 else moved.norm(dim=-1))
        doubt = flat.norm(dim=-1) * self.nodes[-1].sizes.norm() * (flat.shape[1] + 8) * 4 * EPS
        whole: torch.Tensor = found * (1 + 1e-9) + doubt
        return whole

    def _moved(self, node: Node) -> tuple[Steps, torch.Tensor]:
        """Steps of a node, and how far rounding moves each token."""
        if not bool(node.needed.any()) or isinstance(node, FixedNode):
            return {}, torch.zeros_like(node.sizes)
        if not node.parents:
            scale = self.inputs.scale
            entries = torch.diag(scale.flatten())[scale.flatten() > 0]
            return {0: entries.reshape(-1, *scale.shape)}, torch.zeros_like(node.sizes)
        match node:
            case NormNode():
                steps, rounded = self._norm(node)
            case ActivationNode():
                steps, rounded = self._activation(node)
            case ProductNode():
                steps, rounded = self._product(node)
            case AttentionNode():
                steps, rounded = self._attention(node)
            case ConstantNode():
                raise UnboundedError
            case _:
                steps, rounded = self._linear(node)
        return steps, rounded + self.underflow

    def _linear(self, node: Node) -> tuple[Steps, torch.Tensor]:
        """The same map of every group."""
        node.prepare(self)  # type: ignore[arg-type]  # linear nodes read unit and inputs only
        terms = node.width + sum(x.width + x.tokens for x in node.parents) + 16
        doubt = 8 * terms * EPS * node.grown(*(x.sizes for x in node.parents))
        grown = node.grown(*(self.rounded[x.index] for x in node.parents))
        return self.pushed(node, node.push), grown + node.local + doubt

    def _norm(self, node: NormNode) -> tuple[Steps, torch.Tensor]:
        """Every head of every token by itself."""
        (y,) = node.parents
        index = node.needed.nonzero()[:, 0]
        y0 = heads_apart(y.centre, node.heads)
        width = y0.shape[-1]
        power = y0.square().mean(dim=-1) + node.epsilon
        inner = y0[index].reshape(-1, width)
        error, shrunk = norm_error(
            inner, node.gain, power[index].flatten(), node.epsilon, *self.matrices(y, index)
        )

        def push(step: torch.Tensor) -> torch.Tensor:
            moved = heads_apart(step, node.heads)
            along = (moved * y0).sum(dim=-1, keepdim=True) / (width * power[..., None])
            return ((moved - along * y0) / power.sqrt()[..., None] * node.gain).flatten(-2)

        # No derivative on the way is larger than the gain over the smallest root of the power.
        gain = float(node.gain.abs().max())
        least = power.sqrt().amin(dim=-1) * (shrunk * (1 - 1e-9))
        least = least - self.rounded[y.index] / width**0.5
        if not bool((least[index] > 0).all()):
            raise UnboundedError
        steepest = gain / least.clamp(min=1e-300)
        doubt = 32 * (width + 16) * EPS * steepest * y.sizes
        fixed = 0.0 if node.bias is None else float(node.bias.norm())
        local = self.unit * 2 * (node.width + 12) * (gain * node.width**0.5 + fixed)
        rounded = steepest * self.rounded[y.index] + doubt + local
        return self.pushed(node, push) | self.group_of(node, error, index), rounded

    def _activation(self, node: ActivationNode) -> tuple[Steps, torch.Tensor]:
        """A slope for each entry."""
        (x,) = node.parents
        index = node.needed.nonzero()[:, 0]
        middle = x.centre[index].flatten()
        some, error = activation_error(node.act, middle, *self.matrices(x, index))
        slope = torch.zeros_like(x.centre)
        slope[index] = some.reshape(len(index), -1)
        constant = node.act.constant
        size = constant * x.longest + node.act.at_zero * node.width**0.5
        local = self.unit * 8 * size + node.act.jump * node.width**0.5
        rounded = constant * self.rounded[x.index] + local + 8 * EPS * constant * x.sizes
        steps = self.pushed(node, lambda step: step * slope)
        return steps | self.group_of(node, error, index), rounded

    def _product(self, node: ProductNode) -> tuple[Steps, torch.Tensor]:
        """What is left is the product of both changes."""
        x, y = node.parents
        index = node.needed.nonzero()[:, 0]
        one, other = (summed(*self.matrices(each, index)) for each in (x, y))
        error = widened(one * other, 4)
        local = (self.unit * 2 + 16 * EPS) * x.longest * y.longest
        rounded = y.longest * self.rounded[x.index] + x.longest * self.rounded[y.index] + local
        steps = self.pushed(node, lambda one, other: one * y.centre + other * x.centre)
        return steps | self.group_of(node, error, index), rounded

    def _attention(self, node: AttentionNode) -> tuple[Steps, torch.Tensor]:
        """All heads together; a mean is never longer than the longest value."""
        index = node.needed.nonzero()[:, 0]
        if node.softcap is not None or node.p[:, index].numel() > LARGEST:
            raise UnboundedError
        q, k, v = node.queries, node.keys, node.values
        at_queries = node.split(q.centre, queries=True)[:, index]
        places = at_queries, node.split(k.centre), node.split(v.centre)
        moved, beyond = (
            MovedAttention(
                node.p[:, index],
                places,
                _heads(node, index, self.together((q, k, v), linear=linear)),
                node.scale,
                node.seen[:, index],
            )
            for linear in (True, False)
        )
        error, far = attention_error(moved, beyond, self._score_doubt(node)[index])

        def push(*each: torch.Tensor) -> torch.Tensor:
            out = moved.linear(*_heads(node, index, each))
            found = out.new_zeros(out.shape[-1], node.tokens, node.width)
            found[:, index] = out.permute(3, 1, 0, 2).flatten(2)
            return found

        longest = float(v.longest.max()) * math.exp(far) * (1 + far) * node.heads
        terms = 64 * (node.width + k.tokens + 64) * EPS + 16 * node.weight_doubt()
        rounded = node.rounding(self.unit) + float(self.rounded[v.index].max()) * node.heads
        found = self.pushed(node, push) | self.group_of(node, error, index)
        return found, rounded + longest * terms

    def _score_doubt(self, node: AttentionNode) -> torch.Tensor:
        """Rounding of centred scores: of their coefficients, and of queries and keys."""
        q, k = node.queries, node.keys
        terms = (node.width_of_query + k.tokens + 64) * 16 * EPS + 8 * node.weight_doubt()
        lost_q = self.rounded[q.index] + terms * q.sizes
        lost_k = float((self.rounded[k.index] + terms * k.sizes).max())
        return 2 * node.scale * (lost_q * float(k.longest.max()) + q.longest * lost_k)


def _heads(
    node: AttentionNode, index: torch.Tensor, steps: list[torch.Tensor] | tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Steps of queries, keys and values as (heads, tokens, width, size)."""
    on_q = heads_apart(steps[0][:, index], node.heads).permute(2, 1, 3, 0)
    on_k, on_v = (
        heads_apart(each, node.kv_heads).permute(2, 1, 3, 0).repeat_interleave(node.group, dim=0)
        for each in steps[1:]
    )
    return on_q, on_k, on_v
