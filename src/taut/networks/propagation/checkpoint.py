"""Checkpoints: places where rows may end before the input (theorem affine-checkpoint).

At a node that every path passes through, each entry is a linear function of the input within an
error, as it was found there. A row that arrives becomes a linear function of the input at once,
and the errors are what is lost: they were found entry by entry and no longer know how they
depend on each other. In return the row is not carried through all that came before.
"""

from __future__ import annotations

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ellipsoid import combined, with_ridge
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.node import Node
from taut.networks.propagation.rows import Rows, unit_rows
from taut.networks.propagation.scatter import Scatter


class Checkpoint:
    """The deviation of a node as L·u + E, u in units of the set of inputs.

    Parameters
    ----------
    linear
        L, (tokens, width, entries).
    scatter
        E as an ellipsoid.
    errors
        The largest |E| of every entry, (tokens, width).
    box
        The largest deviation of every entry, (tokens, width).
    """

    def __init__(
        self, linear: torch.Tensor, scatter: Scatter, errors: torch.Tensor, box: torch.Tensor
    ) -> None:
        self.linear, self.scatter, self.errors = linear, scatter, errors
        self.sizes = box.norm(dim=-1) * (1 + 1e-9)

    def shape(self, far: float) -> torch.Tensor:
        """An ellipsoid of L·u + E of each token, for |u| ≤ far, (tokens, width, width)."""
        gram = self.linear @ self.linear.mT * far**2
        most = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        ridge = (self.linear.shape[-1] + 32) * 4 * EPS * most
        return combined([with_ridge(gram, ridge), self.scatter.by_token()])

    def whole(self, far: float) -> torch.Tensor:
        """One ellipsoid of L·u + E of all tokens, (tokens·width, tokens·width)."""
        flat = self.linear.flatten(0, 1)
        gram = flat @ flat.mT * far**2
        joint, single = self.scatter.joint, self.scatter.single
        assert joint is not None
        own = single.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        sizes = torch.cat((gram.trace()[None], joint.trace()[None], own)).clamp(min=0.0).sqrt()
        weights = torch.where(sizes > 0, sizes.sum() / sizes.clamp(min=1e-300), 0.0)
        found = gram.mul_(weights[0]).add_(joint, alpha=float(weights[1]))
        for token, (block, weight) in enumerate(zip(single, weights[2:], strict=True)):
            part = slice(token * len(block), (token + 1) * len(block))
            found[part, part] += block * weight
        ridge = (self.linear.shape[-1] + 64) * 4 * EPS * found.trace()
        return with_ridge(found, ridge)

    def end(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Coefficients of the rows on the input, (rows, entries), their error and rounding.

        A coefficient is a sum of n products and errs by γ_n of Σ|a||L|; over the set this is at
        most γ_n‖a‖ times the length of a token's box, in l1, l2 and l∞.
        """
        if rows.token is None:
            values = rows.values.flatten(1) @ self.linear.flatten(0, 1)
        else:
            values = rows.values.new_empty(len(rows), self.linear.shape[-1])
            for token in torch.unique(rows.token).tolist():
                here = rows.token == token
                values[here] = rows.values[here, 0] @ self.linear[token]
        single = (rows.values.abs() * rows.of(self.errors)).flatten(1).sum(dim=-1) * (1 + 1e-9)
        error = torch.minimum(single, self.scatter.of_rows(rows))
        terms = rows.values[0].numel() + 8
        return values, error, rows.weighed(self.sizes) * (terms * EPS)


def at_input(inputs: InputSet, node: Node) -> Checkpoint:
    """The input itself, which has no errors."""
    rows = unit_rows(node.width, torch.arange(node.tokens), node.centre)
    values = inputs.entries(Rows(rows.dense(node.tokens))).values
    size = node.centre.numel()
    nothing = Scatter(
        values.new_zeros(size, size), values.new_zeros(node.tokens, node.width, node.width)
    )
    box = inputs.reach(values).reshape(node.centre.shape)
    return Checkpoint(
        values.reshape(*box.shape, -1), nothing, torch.zeros_like(box), box * (1 + 1e-9)
    )


def passages(nodes: list[Node]) -> set[int]:
    """Nodes that every path from the input passes through, by their index."""
    found, open_until = {0}, 0
    last_reader = [0] * len(nodes)
    for node in nodes:
        for parent in node.parents:
            last_reader[parent.index] = node.index
    for node in nodes[1:]:
        before = nodes[node.index - 1]
        if before.kind != "fixed":
            open_until = max(open_until, last_reader[before.index])
        if open_until <= node.index and node.kind != "fixed":
            found.add(node.index)
    return found


def forks(nodes: list[Node]) -> set[int]:
    """Nodes that several others read, by their index."""
    readers = [0] * len(nodes)
    for node in nodes:
        for parent in node.parents:
            readers[parent.index] += 1
    return {index for index, many in enumerate(readers) if many > 1}
