"""cap: a matrix, or many, with singular values of at most a limit, by one of four methods."""

from __future__ import annotations

import math

import torch

from taut._base.checks import real_number
from taut._base.rounding import down
from taut.control.constraints.capped_stack import METHODS, capped_stack

NORMS = ("spectral", "rms")
SMALLEST, LARGEST = 1e-30, 1e30  # limits; the range of single precision ends soon after


@torch.no_grad()
def cap(
    matrix: torch.Tensor, limit: float, *, method: str = "exact", norm: str = "spectral"
) -> torch.Tensor:
    """The matrix with its singular values brought to at most a limit, which is proved.

    A matrix that is proved to be within the limit is returned as it is. Others are changed by

    ``"exact"``
        cutting every singular value at the limit: the nearest matrix within it, by a decomposition
    ``"soft_cap"``
        σ ↦ σ − a·σ³, by products alone: the cheapest, and the others shrink a little too
    ``"hard_cap"``
        σ ↦ σ − a·σ^(2k+1), k from 8 to 32: nearly cutting, by products alone
    ``"normalise"``
        dividing the whole matrix by its largest singular value

    Products suffice where the largest singular value is at most 1.5 times the limit (soft cap) or
    1.06 times (hard cap), as after a step of training. Matrices that are further away are cut
    exactly. Afterwards the largest singular value is at most the limit, in exact arithmetic for the
    numbers as they are stored; it lies below by what rounding might have added and by how near its
    norm was proved, from 4·10⁻⁶ (exact) to about 0.005 of the limit.

    Parameters
    ----------
    matrix
        A matrix, or a stack of them (..., rows, columns), in single or double precision.
    limit
        Largest singular value.
    method
        See above.
    norm
        ``"spectral"``, or ``"rms"`` for a limit on the norm between root mean squares: the limit of
        singular values is then limit·√(rows/columns), that of a layer with so many outputs and
        inputs.

    Examples
    --------
    >>> import torch
    >>> from taut.control import cap
    >>> w = torch.diag(torch.tensor([1.2, 0.9, 0.1]))
    >>> cap(w, 1.0).diagonal().round(decimals=2)
    tensor([1.0000, 0.9000, 0.1000])
    >>> cap(w, 1.0, method="soft_cap").diagonal().round(decimals=2)
    tensor([1.0000, 0.8200, 0.1000])
    >>> cap(w, 1.0, method="normalise").diagonal().round(decimals=2)
    tensor([1.0000, 0.7500, 0.0800])
    >>> cap(w, 2.0) is w
    True
    """
    limit = checked_limit(limit)
    check_choices(method, norm)
    if not isinstance(matrix, torch.Tensor) or matrix.ndim < 2:
        raise TypeError("matrix must be a torch.Tensor of at least two dimensions")
    if matrix.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"matrix must be of single or double precision, got {matrix.dtype}: half precision "
            "would round a cap away"
        )
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError("matrix holds NaN or infinite numbers and cannot be capped")
    if matrix.numel() == 0:
        return matrix
    rows, columns = matrix.shape[-2:]
    stack = matrix.detach().reshape(-1, rows, columns)
    done = capped_stack(stack, spectral_limit(limit, norm, rows, columns), method)
    return done.matrices.reshape(matrix.shape) if len(done.changed) else matrix


def checked_limit(limit: float) -> float:
    """The limit as a number, refused where its square would leave single precision."""
    if not SMALLEST <= real_number(limit, name="limit") <= LARGEST:
        raise ValueError(f"limit must be between {SMALLEST:g} and {LARGEST:g}, got {limit!r}")
    return float(limit)


def check_choices(method: str, norm: str) -> None:
    """Refuse methods and norms that do not exist."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")


def spectral_limit(limit: float, norm: str, rows: int, columns: int) -> float:
    """The limit of singular values: that of the norm between root mean squares times √(m/n)."""
    if norm == "spectral":
        return limit
    # √(m/n) and the product are rounded three times
    return float(down(down(down(limit * math.sqrt(rows / columns)))))
