"""What comes in: arrays as floats with the axis last, exponents, scales; and what is refused."""

from __future__ import annotations

import math
import operator

import numpy as np

from taut._base.array import Array, Namespace, is_jax, known, namespace, wide_eps
from taut._base.integers import array_of, floats_of, is_exact

_KEPT = ("float32", "float64")
_KEPT_BY_NUMPY = (np.dtype(np.float32), np.dtype(np.float64))  # in the byte order of the machine
_WIDENED = ("float16", "bfloat16")
SMALLEST, LARGEST = 1e-40, 1e40  # of weights, tokens and factors


def as_float_array(x: Array, *, name: str) -> tuple[Namespace, Array]:
    """Namespace of ``x`` and ``x`` as float32 or float64; whatever has no real values is refused.

    Lists and numbers become NumPy arrays, integers float64 (where it exists) if that is exact, half
    precision float32: softmax differences need the digits that half precision has not got.
    """
    if type(x) is np.ndarray and x.dtype in _KEPT_BY_NUMPY:  # the names of types take longer
        return namespace(x), x
    if isinstance(x, (list, tuple, int, float)) and not isinstance(x, bool):
        x = array_of(x, name=name)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array; fill masked logits with -inf: x.filled(-np.inf)"
        )
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
        return xp, floats_of(x, kind, name=name)
    raise TypeError(
        f"{name} must hold real numbers (float16, bfloat16, float32, float64 or integers); "
        f"its dtype is {x.dtype}"
    )


def rows(x: Array, *, axis: int, name: str) -> tuple[Namespace, Array]:
    """Namespace and float array with ``axis`` moved last; at least one entry along it."""
    xp, x = as_float_array(x, name=name)
    axis = whole_number(axis, name="axis")
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


def whole_number(value: int, *, name: str, least: int | None = None) -> int:
    """Check an int, also NumPy's."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}") from None
    if least is not None and found < least:
        raise ValueError(f"{name} must be at least {least}, got {found}")
    return found


def real_number(value: float, *, name: str, hint: str = "") -> float:
    """Check a plain real number; arrays that are traced or differentiated are refused."""
    if type(value) is float or (type(value) is int and abs(value) < 2**53):  # nearly always
        return float(value)
    try:
        if isinstance(value, (str, bytes, bool)) or getattr(value, "requires_grad", False):
            raise TypeError
        found = float(value)
    except OverflowError:
        raise ValueError(f"{name} is {value!r}, beyond the range of a float") from None
    except (TypeError, ValueError):
        hint = hint and f"; {hint}"
        raise TypeError(f"{name} must be a plain number, got {value!r}{hint}") from None
    if not math.isnan(found) and not is_exact(value):
        raise ValueError(f"{name} is {value!r}, which a float cannot hold exactly: round it first")
    return found


def finite_at_least_zero(value: float, *, name: str) -> float:
    """Check a finite number ≥ 0."""
    found = real_number(value, name=name)
    if not 0 <= found < math.inf:
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
    return found


def finite_above_zero(value: float, *, name: str) -> float:
    """Check a finite number > 0."""
    found = real_number(value, name=name)
    if not 0 < found < math.inf:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return found


def positive_in_range(value: float, *, name: str) -> float:
    """Check a number > 0 of a size that can be squared."""
    return in_range(finite_above_zero(value, name=name), name=name)


def in_range(size: float, *, name: str) -> float:
    """Refuse a size with which products of weights and tokens, squared, over- or underflow."""
    if not SMALLEST <= size <= LARGEST:
        raise ValueError(
            f"{name} is {size:.3g}, out of range [{SMALLEST:g}, {LARGEST:g}]: rescale it"
        )
    return size


def restore_axis(x: Array, axis: int) -> Array:
    """Move the last axis back to where ``rows`` found it."""
    return x if axis in (-1, x.ndim - 1) else namespace(x).moveaxis(x, -1, axis)


def scale_value(
    scale: float,
    *,
    infinite: str | None = None,
    zero: str | None = None,
    name: str = "scale",
) -> float:
    """Check the inverse temperature; ``infinite`` and ``zero`` say why those have no meaning."""
    value = real_number(
        scale, name=name, hint="to learn or trace it, multiply the logits by it instead"
    )
    if value != value:  # not math.isnan: torch.compile cannot follow it
        raise ValueError(f"{name} must be a real number, got nan")
    if abs(value) == math.inf and infinite is not None:
        raise ValueError(f"{name} must be finite here, got {value}: {infinite}")
    if value == 0 and zero is not None:
        raise ValueError(f"{name} must not be 0 here: {zero}")
    return value


def check_range(scale: float, x: Array, *, name: str) -> None:
    """Refuse a number that float32 alone, or XLA without subnormal numbers, would lose."""
    if 2.0**-100 <= abs(scale) <= 2.0**100:
        return
    only_float32 = wide_eps(x) > 1e-10
    limit = 2.0**100 if only_float32 else 2.0**900
    if not (only_float32 or is_jax(x)) or scale == 0 or math.isinf(scale):
        return
    if not 1 / limit <= abs(scale) <= limit:
        what, helps = ("float32", "give float64 arrays") if only_float32 else ("JAX", "use NumPy")
        raise ValueError(f"{name} is {scale}, too extreme for {what}: {helps}, or scale the logits")


def exponent(p: float, *, name: str = "p") -> float:
    """Check the exponent of an l_p norm, 1 <= p <= inf."""
    value = real_number(p, name=name, hint=f"{name} is in [1, inf]")
    if not value >= 1:
        raise ValueError(f"{name} must be in [1, inf] for l_{name} to be a norm, got {p!r}")
    return value


def dual_exponent(p: float) -> float:
    """Exponent p′ with 1/p + 1/p′ = 1."""
    if p == 1:
        return math.inf
    return 1.0 if math.isinf(p) else p / (p - 1)


def same_library(first: Array, second: Array, *, names: tuple[str, str]) -> None:
    """Refuse to mix arrays of two libraries."""
    if namespace(first) is not namespace(second):
        raise TypeError(
            f"{names[0]} and {names[1]} must be arrays of one library, got "
            f"{type(first).__name__} and {type(second).__name__}"
        )


def check_logits(xp: Namespace, largest: Array, *, name: str) -> None:
    """Refuse NaN and +inf, seen through the largest logit of every row."""
    bad = xp.isnan(largest) | (largest == math.inf)
    if known(xp.any(bad)):
        what = "NaN" if known(xp.any(xp.isnan(largest))) else "+inf"
        raise ValueError(
            f"{name} contains {what}; logits must be finite, or -inf for a masked entry"
        )


def exponent_name(p: float) -> str:
    """An exponent as it is written."""
    return "∞" if math.isinf(p) else f"{p:g}"
