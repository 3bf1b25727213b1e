"""The whole derivative of an attention layer, as one matrix."""

from __future__ import annotations

import numpy as np

from taut._base.array import Array, quietly
from taut._base.matrix_norm import Matrix
from taut.attention.head_at_tokens import Tokens, evaluate, tokens
from taut.attention.layer import Layer


@quietly
def jacobian(
    layer: Layer,
    x: Array,
    *,
    context: Array = None,
    mask: Array = None,
    causal: bool = False,
    bias: Array = None,
    rotations: Array = None,
    wrt: str = "input",
) -> Matrix:
    """Derivative of the output, flattened token by token, in the tokens that go in.

    The arguments are those of :func:`dot_product`. For cross-attention and ``wrt="input"`` the
    columns are those of x, then those of the context. The matrix is as large as (tokens · width)².

    Examples
    --------
    >>> import numpy as np
    >>> layer = Layer(np.eye(2), np.eye(2), np.eye(2))
    >>> jacobian(layer, [[1.0, 0.0]])
    array([[1., 0.],
           [0., 1.]])
    """
    at = tokens(layer, x, context, mask, causal, bias, rotations)
    if wrt not in ("input", "queries", "context"):
        raise ValueError(f"wrt must be input, queries or context, got {wrt!r}")
    return assemble(layer, at, wrt)[0]


def assemble(layer: Layer, at: Tokens, wrt: str) -> tuple[Matrix, float]:
    """The matrix, and a bound on what rounding may have changed of its norm."""
    n, m = at.seen.shape
    heads = [evaluate(layer, at, h, fold=False) for h in range(len(layer.heads))]
    blocks = []
    for index, head in enumerate(heads):
        size, inputs = head.values.shape
        query = np.zeros((n, size, n, at.x.shape[1]))
        context = np.zeros((n, size, m, inputs))
        for i, row in enumerate(head.rows):
            query[i, :, i] = row.query
            lever = np.broadcast_to(row.gradient * row.c[:, None], (m, inputs))
            context[i] = np.einsum("j,ja,jb->ajb", row.p, row.spread, lever)
            context[i] += row.p[None, :, None] * head.values[:, None, :]
        found = _chosen(query.reshape(n, size, -1), context.reshape(n, size, -1), at, wrt)
        share = layer.heads[index].wo
        blocks.append(found if share is None else np.einsum("oa,iab->iob", share, found))
    whole = np.concatenate(blocks, axis=1) if layer.wo is None else np.sum(blocks, axis=0)
    outer = 1.0 if layer.wo is None else float(np.linalg.norm(layer.wo))
    error = 4 * outer * sum(head.slack * head.size for head in heads)
    return np.asarray(whole).reshape(-1, whole.shape[-1]), error


def _chosen(query: Matrix, context: Matrix, at: Tokens, wrt: str) -> Matrix:
    if wrt == "queries":
        return query
    if wrt == "context":
        return context
    return query + context if at.itself else np.concatenate([query, context], axis=-1)
