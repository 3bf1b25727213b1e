"""Layer: the weights of dot-product attention, checked once and split into heads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taut._base.array import Array
from taut._base.checks import positive_in_range, whole_number
from taut._base.matrix_norm import Matrix, spectral_of_product
from taut.attention.checks import numbers


class Head(NamedTuple):
    """The weights of one head; ``wo`` is its share of the output projection."""

    wq: Matrix
    wk: Matrix
    wv: Matrix
    wo: Matrix | None
    bq: Matrix
    bk: Matrix

    @property
    def folded(self) -> Matrix:
        """Values as the output sees them, but in the head's own few dimensions.

        With Wo = QR, QᵀQ = I, the norms of Wo v and Rv are the same.
        """
        if self.wo is None:
            return self.wv
        return np.asarray(np.linalg.qr(self.wo, mode="r") @ self.wv)

    @property
    def value_norm(self) -> float:
        """Upper bound on ‖Wo Wv‖."""
        factors = (self.wv,) if self.wo is None else (self.wo, self.wv)
        return spectral_of_product(*factors)


class Layer:
    """Dot-product attention: scores z_ij = cap(scale·⟨Wq xᵢ + bq, Wk yⱼ + bk⟩), values Wv yⱼ + bv.

    Parameters
    ----------
    wq, wk, wv
        Weights as in ``torch.nn.Linear``, (outputs, inputs), the heads one after another.
    wo
        Output projection, (outputs, heads times values); without it the heads are concatenated.
    bq, bk, bv
        Biases. That of the values shifts the output and changes no bound; that of the keys does so
        only under a soft cap or rotary positions (theorem shift).
    heads, kv_heads
        Number of heads, and of heads of keys and values where several queries share one
        (grouped-query attention).
    scale
        Factor of the scores; 1/√(width of a query) if not given.
    softcap
        c, if the scores are capped smoothly to c·tanh(score/c) before bias and mask.

    Examples
    --------
    >>> import numpy as np
    >>> Layer(np.eye(4), np.eye(4), np.eye(4), heads=2)
    Layer(heads=2, kv_heads=2, width=2, inputs=4, context_inputs=4, outputs=4)
    """

    __slots__ = ("heads", "scale", "softcap", "wo")

    def __init__(
        self,
        wq: Array,
        wk: Array,
        wv: Array,
        wo: Array = None,
        *,
        bq: Array = None,
        bk: Array = None,
        bv: Array = None,
        heads: int = 1,
        kv_heads: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> None:
        count = whole_number(heads, name="heads", least=1)
        groups = count if kv_heads is None else whole_number(kv_heads, name="kv_heads", least=1)
        if count % groups:
            raise ValueError(f"heads must be a multiple of kv_heads, got {count} and {groups}")
        wq, wk, wv = (numbers(w, name=n) for w, n in ((wq, "wq"), (wk, "wk"), (wv, "wv")))
        query, key, value = (
            _blocks(w, b, k, name)
            for w, b, k, name in (
                (wq, bq, count, "q"),
                (wk, bk, groups, "k"),
                (wv, bv, groups, "v"),
            )
        )
        width = query[0][0].shape[0]
        if key[0][0].shape[0] != width:
            raise ValueError(
                f"queries and keys of a head must be of one width; wq gives {width}, wk "
                f"{key[0][0].shape[0]}; check heads, kv_heads; weights are (outputs, inputs)"
            )
        if wk.shape[1] != wv.shape[1]:
            raise ValueError(
                f"wk and wv read the same tokens; they take {wk.shape[1]} and {wv.shape[1]} inputs"
            )
        self.wo = None if wo is None else numbers(wo, name="wo")
        out = value[0][0].shape[0]
        if self.wo is not None and self.wo.shape[1] != count * out:
            raise ValueError(
                f"wo must take {count} heads of {out} values, {count * out} inputs; its shape is "
                f"{self.wo.shape}"
            )
        shares = [None] * count if self.wo is None else np.split(self.wo, count, axis=1)
        group = count // groups
        self.heads = tuple(
            Head(
                query[h][0], key[h // group][0], value[h // group][0], shares[h],
                query[h][1], key[h // group][1],
            )
            for h in range(count)
        )  # fmt: skip
        self.scale = (
            1 / math.sqrt(width) if scale is None else positive_in_range(scale, name="scale")
        )
        self.softcap = None if softcap is None else positive_in_range(softcap, name="softcap")

    @property
    def inputs(self) -> int:
        """Width of the tokens that queries are made of."""
        return int(self.heads[0].wq.shape[1])

    @property
    def context_inputs(self) -> int:
        """Width of the tokens that keys and values are made of."""
        return int(self.heads[0].wk.shape[1])

    def __repr__(self) -> str:
        groups = len({id(head.wk) for head in self.heads})
        rows = sum(head.wv.shape[0] for head in self.heads)
        return (
            f"Layer(heads={len(self.heads)}, kv_heads={groups}, width={self.heads[0].wq.shape[0]}, "
            f"inputs={self.inputs}, context_inputs={self.context_inputs}, "
            f"outputs={rows if self.wo is None else self.wo.shape[0]})"
        )


def _blocks(weight: Matrix, bias: Array, count: int, name: str) -> list[tuple[Matrix, Matrix]]:
    """Weight and bias of every head."""
    if weight.shape[0] % count:
        raise ValueError(
            f"w{name} has {weight.shape[0]} outputs, which is not a multiple of its {count} heads"
        )
    if bias is None:
        bias = np.zeros(weight.shape[0])
    bias = numbers(bias, name=f"b{name}", ndim=1)
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"b{name} must have {weight.shape[0]} entries, got {bias.shape[0]}")
    return list(zip(np.split(weight, count), np.split(bias, count), strict=True))
