"""The one door to array-api-compat: which namespace, which dtype, which axis, and what is refused.

Nothing else in the package imports array-api-compat, and nothing here imports a framework that the
caller has not imported already.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import array_api_compat as compat
import numpy as np

Array = Any
Namespace = Any

_KEPT = ("float32", "float64")
_WIDENED = ("float16", "bfloat16")


_P = ParamSpec("_P")
_R = TypeVar("_R")


def is_torch(x: Array) -> bool:
    """Whether ``x`` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_jax(x: Array) -> bool:
    """Whether ``x`` is a JAX array or tracer, without importing JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def namespace(x: Array) -> Namespace:
    """Array-API namespace of ``x``."""
    if is_torch(x):  # asked first, and not through a cached function, for torch.compile's sake
        import array_api_compat.torch as xp

        return xp
    return compat.array_namespace(x)


def quietly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Silence NumPy's floating-point warnings: infinities and underflow are part of the game here.

    torch and JAX do not warn, and torch.compile cannot follow the context manager.
    """

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if args and (is_torch(args[0]) or is_jax(args[0])):
            return function(*args, **kwargs)
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return wrapper


def as_float_array(x: Array, *, name: str) -> tuple[Namespace, Array]:
    """Namespace of ``x`` and ``x`` as float32 or float64; whatever has no real values is refused.

    Lists and numbers become NumPy arrays, integers the namespace's default float, half precision
    float32: softmax differences need the digits that half precision has not got.
    """
    if isinstance(x, (list, tuple, int, float)) and not isinstance(x, bool):
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from None
    try:
        xp = namespace(x)
    except TypeError:
        raise TypeError(
            f"{name} must be a NumPy, PyTorch, JAX or other array-API array, or a list of numbers; "
            f"got {type(x).__name__}"
        ) from None
    kind = str(getattr(x.dtype, "name", x.dtype)).rsplit(".", maxsplit=1)[-1]
    if isinstance(x, np.ndarray) and not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if kind in _KEPT:
        return xp, x
    if kind in _WIDENED:
        return xp, xp.astype(x, xp.float32)
    if kind.startswith(("int", "uint")):
        return xp, xp.astype(x, xp.zeros(()).dtype)
    raise TypeError(
        f"{name} must hold real numbers (float16, bfloat16, float32, float64 or integers); "
        f"its dtype is {x.dtype}"
    )


def rows(x: Array, *, axis: int, name: str) -> tuple[Namespace, Array]:
    """Namespace and float array with ``axis`` moved last; at least one entry along it."""
    xp, x = as_float_array(x, name=name)
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"axis must be an int, got {axis!r}")
    if x.ndim == 0:
        raise ValueError(f"{name} must have at least one axis to take the softmax along; it is 0-d")
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is out of range for {name} of shape {tuple(x.shape)}")
    if x.shape[axis] == 0:
        raise ValueError(
            f"{name} has no entries along axis {axis} (shape {tuple(x.shape)}); "
            "softmax needs at least one"
        )
    if axis not in (-1, x.ndim - 1):
        x = xp.moveaxis(x, axis, -1)
    return xp, x


def restore_axis(x: Array, axis: int) -> Array:
    """Move the last axis back to where ``rows`` found it."""
    return x if axis in (-1, x.ndim - 1) else namespace(x).moveaxis(x, -1, axis)


def scale_value(scale: float, *, infinite: str | None = None, zero: str | None = None) -> float:
    """Check the inverse temperature; ``infinite`` and ``zero`` say why those have no meaning."""
    try:
        value = float(scale)
    except (TypeError, ValueError):
        raise TypeError(f"scale must be a real number, got {scale!r}") from None
    if math.isnan(value):
        raise ValueError("scale must be a real number, got nan")
    if math.isinf(value) and infinite is not None:
        raise ValueError(f"scale must be finite here, got {value}: {infinite}")
    if value == 0 and zero is not None:
        raise ValueError(f"scale must not be 0 here: {zero}")
    return value


def representable(scale: float, x: Array) -> float:
    """The scale, not beyond the range of x's dtype: an infinite scale times 0 would be NaN."""
    largest = float(np.finfo(np.float32 if eps_of(x) > 1e-10 else np.float64).max)
    return min(max(scale, -largest), largest)


def exponent(p: float, *, name: str = "p") -> float:
    """Check the exponent of an l_p norm, 1 <= p <= inf."""
    try:
        value = float(p)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number in [1, inf], got {p!r}") from None
    if not value >= 1:
        raise ValueError(f"{name} must be in [1, inf] for l_{name} to be a norm, got {p!r}")
    return value


def dual_exponent(p: float) -> float:
    """Exponent p′ with 1/p + 1/p′ = 1."""
    if p == 1:
        return math.inf
    return 1.0 if math.isinf(p) else p / (p - 1)


def known(flag: Array) -> bool:
    """Truth of a 0-d array, or False while it is being traced and has no value yet."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        return False
    try:
        return bool(flag)
    except (TypeError, RuntimeError):  # a jax tracer, a torch.func batched tensor
        return False


def check_logits(xp: Namespace, largest: Array, *, name: str) -> None:
    """Refuse NaN and +inf, seen through the largest logit of every row."""
    bad = xp.isnan(largest) | (largest == math.inf)
    if known(xp.any(bad)):
        what = "NaN" if known(xp.any(xp.isnan(largest))) else "+inf"
        raise ValueError(
            f"{name} contains {what}; logits must be finite, or -inf for a masked entry"
        )


def stop_gradient(x: Array) -> Array:
    """The same values, constant to automatic differentiation."""
    if is_torch(x):
        return x.detach()
    if is_jax(x):
        return sys.modules["jax"].lax.stop_gradient(x)
    return x


def differentiated(x: Array) -> bool:
    """Whether a derivative with respect to ``x`` may be asked for."""
    if is_torch(x):
        torch = sys.modules["torch"]
        if torch.compiler.is_compiling():
            return bool(x.requires_grad)
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
        return bool((x.requires_grad and torch.is_grad_enabled()) or wrapped)
    if is_jax(x):
        return isinstance(x, sys.modules["jax"].core.Tracer)
    return False


def host_view(x: Array) -> np.ndarray[Any, Any] | None:
    """The values as a NumPy array, shared if possible; None while traced or off the CPU."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    if is_torch(x):
        torch = sys.modules["torch"]
        if (
            torch.compiler.is_compiling()
            or torch._C._functorch.is_functorch_wrapped_tensor(x)
            or type(x) not in (torch.Tensor, torch.nn.Parameter)
            or x.device.type != "cpu"
        ):
            return None
        host: np.ndarray[Any, Any] = x.detach().numpy()
        return host
    if is_jax(x) and not isinstance(x, sys.modules["jax"].core.Tracer):
        on_cpu = all(device.platform == "cpu" for device in x.devices())
        return np.asarray(x) if on_cpu else None
    return None


def widest(x: Array) -> Array:
    """``x`` in float64, or as it is where float64 does not exist (JAX without x64, Apple GPUs)."""
    if is_jax(x) and not sys.modules["jax"].config.jax_enable_x64:
        return x
    if is_torch(x) and x.device.type == "mps":
        return x
    xp = namespace(x)
    return xp.astype(x, xp.float64, copy=False)


def eps_of(x: Array) -> float:
    """Distance from 1 to the next number in the precision of ``x``."""
    return 2.0**-23 if "float32" in str(x.dtype) else 2.0**-52


def positions(x: Array) -> Array:
    """Indices 0, 1, … along the last axis, on the device of ``x``."""
    return namespace(x).arange(x.shape[-1], device=_device(x))


def running_sum(x: Array) -> Array:
    """Cumulative sum over the last axis."""
    if is_torch(x):  # array-api-compat's wrapper cannot be followed by torch.compile
        return x.cumsum(-1)
    return namespace(x).cumulative_sum(x, axis=-1)


def lp_norm(v: Array, p: float) -> Array:
    """l_p norm over the last axis, kept, scaled so that powers neither over- nor underflow."""
    xp = namespace(v)
    size = xp.max(xp.abs(v), axis=-1, keepdims=True)
    if p == math.inf:
        return size
    safe = xp.where(size == 0, xp.ones_like(size), size)
    return size * xp.sum((xp.abs(v) / safe) ** p, axis=-1, keepdims=True) ** (1 / p)


def like(values: np.ndarray[Any, Any], x: Array) -> Array:
    """``values`` as an array of the namespace and device of ``x``."""
    if isinstance(x, np.ndarray):
        return values
    if is_torch(x):
        return sys.modules["torch"].from_numpy(values).to(x.device)
    return namespace(x).asarray(values, device=_device(x))


def _device(x: Array) -> Any:
    """Where ``x`` lives; JAX places new arrays by itself, and its tracers live nowhere yet."""
    if is_jax(x):
        return None
    return x.device if is_torch(x) else compat.device(x)


def default_threads(x: Array) -> int:
    """Torch's own setting for torch tensors, else the processors this process may use."""
    if is_torch(x):
        return int(sys.modules["torch"].get_num_threads())
    return processors()


def processors() -> int:
    """Processors this process may use, or fewer if OMP_NUM_THREADS says so."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
