"""The one door to array-api-compat and to the frameworks behind it.

Nothing else in the package imports array-api-compat, and nothing here imports a framework that the
caller has not imported already.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import array_api_compat as compat
import numpy as np

Array = Any
Namespace = Any

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
    if type(x) is np.ndarray:  # by far the most frequent, and the search below takes longer
        return _numpy()
    return compat.array_namespace(x)


@functools.cache
def _numpy() -> Namespace:
    """NumPy's namespace, not found at import: that would import all of NumPy's corners."""
    return compat.array_namespace(np.empty(0))


def quietly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Silence NumPy's floating-point warnings: infinities and underflow are part of the game here.

    torch.compile cannot follow the context manager, and needs none.
    """

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            return function(*args, **kwargs)
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return wrapper


def known(flag: Array) -> bool:
    """Truth of a 0-d array, or False while it is being traced and has no value yet."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        return False
    try:
        return bool(flag)
    except (TypeError, RuntimeError):  # a jax tracer, a torch.func batched tensor
        return False


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
            return True  # torch.func hides whether derivatives of x are asked for
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
        return bool((x.requires_grad and torch.is_grad_enabled()) or wrapped or _is_dual(x))
    if is_jax(x):
        return isinstance(x, sys.modules["jax"].core.Tracer)
    return False


def _is_dual(x: Array) -> bool:
    """Whether a torch tensor carries a derivative of forward mode, which NumPy would lose."""
    forward = sys.modules["torch"].autograd.forward_ad
    return forward._current_level >= 0 and forward.unpack_dual(x).tangent is not None


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
            or _is_dual(x)
        ):
            return None
        host: np.ndarray[Any, Any] = (x.detach() if x.requires_grad else x).numpy()
        return host
    if is_jax(x) and not isinstance(x, sys.modules["jax"].core.Tracer):
        on_cpu = all(device.platform == "cpu" for device in x.devices())
        return np.asarray(x) if on_cpu else None
    return None


def in_compiled_graph(x: Array) -> bool:
    """Whether ``x`` is a torch tensor of the CPU in a function that torch.compile is reading.

    Not where torch.func transforms that function: it cannot follow the derivative of an operator.
    """
    if not is_torch(x):
        return False
    torch = sys.modules["torch"]
    if not torch.compiler.is_dynamo_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return type(x) in (torch.Tensor, torch.nn.Parameter) and x.device.type == "cpu"


def to_host(x: Array) -> np.ndarray[Any, Any]:
    """The values as a NumPy array, copied from another device if need be."""
    return np.asarray(x.detach().cpu() if is_torch(x) else x)


def widest(x: Array) -> Array:
    """``x`` in float64, or as it is where float64 does not exist."""
    if wide_eps(x) > 1e-10:
        return x
    xp = namespace(x)
    return xp.astype(x, xp.float64, copy=False)


def wide_eps(x: Array) -> float:
    """Precision of ``widest(x)``: JAX without x64 and Apple's GPUs have no float64."""
    only_float32 = (is_jax(x) and not sys.modules["jax"].config.jax_enable_x64) or (
        is_torch(x) and x.device.type == "mps"
    )
    return 2.0**-23 if only_float32 else 2.0**-52


def eps_of(x: Array) -> float:
    """Distance from 1 to the next number in the precision of ``x``."""
    size = getattr(x.dtype, "itemsize", None)  # array-api-strict's types do not say
    single = size == 4 if size is not None else "float32" in str(x.dtype)
    return 2.0**-23 if single else 2.0**-52


def positions(x: Array) -> Array:
    """Indices 0, 1, … along the last axis, on the device of ``x``."""
    return namespace(x).arange(x.shape[-1], device=_device(x))


def like(values: np.ndarray[Any, Any], x: Array) -> Array:
    """``values`` as an array of the namespace and device of ``x``."""
    if isinstance(x, np.ndarray):
        return values
    if is_torch(x):
        return sys.modules["torch"].from_numpy(values).to(x.device)
    return namespace(x).asarray(values, device=_device(x))


def lines_like(values: np.ndarray[Any, Any], x: Array) -> list[Array]:
    """The lines of ``values`` as arrays of the namespace and device of ``x``."""
    if is_torch(x) and x.device.type == "cpu":
        return list(sys.modules["torch"].from_numpy(values).unbind())
    return [like(values[i, ...], x) for i in range(len(values))]


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
