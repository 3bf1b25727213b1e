"""Groups of matrices that are penalised together, below each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from taut.models import Block, Weight, distinct_blocks, joined_weights

JOINS = ("stack", "beside", "each")
Group = list[tuple[Weight, bool]]  # weights, and whether they are transposed to stand below others


def weight_groups(blocks: Sequence[Block], kind: str, join: str) -> dict[str, Group]:
    """The groups of all blocks of a kind, by the path of a block or the name of a matrix."""
    found: dict[str, Group] = {}
    for block in distinct_blocks(blocks):
        if block.kind != kind:
            continue
        if kind == "attention" and join != "each":
            # The width of the model goes last; in the output it is first.
            inner = joined_weights(w for role, w in block.weights.items() if role != "output")
            found[block.path] = [(w, False) for w in inner]
            found[block.path] += [(w, True) for r, w in block.weights.items() if r == "output"]
        else:
            found |= {str(w): [(w, False)] for w in block.weights.values()}
    return found


def stacked_matrices(group: Group, join: str) -> list[torch.Tensor]:
    """The matrices of a group in single precision at least: half precision would overflow."""
    found = [w.matrix().mT if turn else w.matrix() for w, turn in group]
    if len({matrix.shape[1] for matrix in found}) > 1:
        names = ", ".join(str(weight) for weight, _ in group)
        raise ValueError(
            f"maps of different widths cannot be joined ({join}): {names}; join='each'"
        )
    return [m.float() if m.dtype in (torch.float16, torch.bfloat16) else m for m in found]
