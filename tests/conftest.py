"""Backends under test, and the settings that keep property tests repeatable."""

from __future__ import annotations

import importlib
import os

# Two workers with two threads each would wait for each other; one thread each is far faster.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"  # no test needs the network, nor waits for one
os.environ["SOURCE_DATE_EPOCH"] = "1700000000"  # records of one audit have one date

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "taut", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("taut")

BACKENDS = ("numpy", "array_api_strict", "torch", "jax")


class Backend:
    """Make arrays of one library and bring results back to NumPy."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module("jax.numpy" if name == "jax" else name)

    def array(self, values: object, dtype: str = "float64") -> object:
        if self.name == "jax" and dtype == "float64":
            dtype = "float32"  # JAX without x64; the x64 mode has tests of its own
        return self.module.asarray(np.asarray(values), dtype=getattr(self.module, dtype))

    def numpy(self, values: object) -> np.ndarray:
        if self.name == "torch":
            return values.detach().numpy()
        return np.asarray(values)

    def tolerance(self, dtype: str = "float64") -> float:
        return 1e-5 if self.name == "jax" or dtype == "float32" else 1e-12


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    pytest.importorskip(request.param)
    return Backend(request.param)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")
