"""Logits as arrays of every library, precision and layout that taut reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.case import Array

LAYOUTS = ("packed", "every second", "columns", "backwards", "three axes", "unaligned", "swapped")
BACKENDS = ("numpy", "torch", "jax", "jax traced", "torch mapped")
# Of the values in a case, which are stored as float32 where NumPy has no such type.
DTYPES = ("float32", "float64", "float16", "bfloat16")


def stored(dtype: str) -> str:
    """The dtype of NumPy in which values of a dtype are kept."""
    return "float32" if dtype == "bfloat16" else dtype


def rounded(x: Array, dtype: str) -> Array:
    """The values of ``x`` rounded to a dtype, those beyond its range to its ends."""
    if dtype == "float16":
        x = np.where(x == -np.inf, x, np.clip(x, -60000.0, 60000.0))
    x = x.astype(stored(dtype))
    if dtype == "bfloat16":
        x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return x


def laid_out(x: Array, layout: str) -> tuple[Array, int]:
    """The same rows in another layout of memory, and the axis of the logits."""
    rows, n = x.shape
    if layout == "every second":
        wide = np.full((2 * rows, 2 * n + 1), np.nan, dtype=x.dtype)
        wide[::2, 1::2] = x
        return wide[::2, 1::2], -1
    if layout == "columns":
        return np.ascontiguousarray(x.T), 0
    if layout == "backwards":
        return np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1], -1
    if layout == "three axes":
        return np.ascontiguousarray(x.reshape(rows, n, 1).transpose(2, 1, 0)), 1
    if layout == "unaligned":
        raw = np.zeros(x.nbytes + 1, dtype=np.uint8)
        raw[1:] = np.frombuffer(x.tobytes(), dtype=np.uint8)
        return raw[1:].view(x.dtype).reshape(rows, n), -1
    if layout == "swapped":
        return x.astype(x.dtype.newbyteorder()), -1
    return np.ascontiguousarray(x), -1


def in_backend(x: Array, dtype: str, backend: str) -> Any:
    """An array of NumPy as one of another library, of the dtype."""
    if backend.startswith("torch"):
        import torch

        return torch.from_numpy(x).to(getattr(torch, dtype))
    if backend.startswith("jax"):
        import jax.numpy as jnp

        return jnp.asarray(x, dtype=getattr(jnp, dtype))
    return x


def traced(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """A function of an array, compiled or mapped over rows where the backend says so."""
    if backend == "jax traced":
        import jax

        return jax.jit(function)
    if backend == "torch mapped":
        import torch

        return torch.func.vmap(function)
    return function
