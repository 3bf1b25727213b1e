"""Growth: how the errors of one checkpoint become those of the next (theorem affine-checkpoint)."""

from __future__ import annotations

import torch

from taut.networks.propagation.ellipsoid import boxed, combined, product, safe, turned
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.scatter import Scatter
from taut.networks.propagation.source import Source

Part = tuple[Rows, Source]


def grown(
    before: Scatter | None,
    rows: Rows | None,
    parts: list[Part],
    rounding: torch.Tensor,
    *,
    together: bool,
) -> Scatter | None:
    """Errors of entries (tokens, width), the shape of ``rounding``.

    Parameters
    ----------
    before, rows
        Errors of the checkpoint before, and the entries as rows on it.
    parts
        The same for what arises in between.
    rounding
        The largest rounding error of each entry.
    together
        Whether a joint part is asked for; without one None is returned if tokens mix.
    """
    tokens, width = rounding.shape
    singles = [torch.diag_embed(boxed(rounding))]
    joints = []
    if before is not None and rows is not None:
        assert before.joint is not None
        if rows.token is None:
            if not together:
                return None
            joints.append(_dense(before, rows.values.flatten(1)))
        else:
            blocks, token = _blocks(rows, tokens)
            if together:
                joints.append(turned(before.joint, len(before.single), blocks, token))
            else:
                singles.append(product(blocks, before.blocks()[token]))
            singles.append(product(blocks, before.single[token]))
    for each, source in parts:
        if each.token is not None:
            blocks, token = _blocks(each, tokens)
            if source.full is not None:
                singles.append(product(blocks, source.full[token]))
            else:
                assert source.axes is not None
                scaled = blocks * source.axes[token].sqrt()[:, None]
                singles.append(product(scaled, None))
        elif together:
            full = source.full
            if full is None:
                assert source.axes is not None
                full = torch.diag_embed(source.axes)
            joints.append(_dense(Scatter(None, full), each.values.flatten(1)))
        else:
            return None
    if not together:
        return Scatter(None, combined(singles))
    size = tokens * width
    joint = combined(joints) if joints else rounding.new_zeros(size, size)
    return Scatter(joint, combined(singles))


def _blocks(rows: Rows, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of one token each as a matrix for each token, (tokens, width, width before)."""
    assert rows.token is not None
    return rows.values[:, 0].reshape(tokens, -1, rows.values.shape[-1]), rows.token.reshape(
        tokens, -1
    )[:, 0]


def _dense(before: Scatter, a: torch.Tensor) -> torch.Tensor:
    """A C Aᵀ, with errors of single tokens joined to those of all."""
    tokens, width = before.single.shape[:2]
    cut = a.reshape(len(a), tokens, width)
    singles = torch.einsum("ntw,twv->ntv", cut, before.single)
    traces = (singles * cut).sum(dim=(0, 2))
    joint = None if before.joint is None else a @ before.joint
    first = (joint * a).sum()[None] if joint is not None else traces[:0]
    roots = torch.cat((first, traces)).clamp(min=0.0).sqrt()
    weights = torch.where(roots > 0, roots.sum() / roots.clamp(min=1e-300), 0.0)
    diagonal = before.single.diagonal(dim1=-2, dim2=-1) * weights[len(first) :, None]
    mixed = (singles * weights[len(first) :, None]).flatten(1)
    if joint is not None and before.joint is not None:
        mixed = mixed + joint * weights[0]
        diagonal = diagonal + before.joint.diagonal().reshape(tokens, width) * weights[0]
    most = a.abs() @ diagonal.flatten().clamp(min=0.0).sqrt()[:, None]
    return safe((mixed @ a.mT).mul_(1 + 1e-12), most, a.shape[1])
