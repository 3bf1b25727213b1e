"""Tensors from files that need not be trusted: no pickles, never more than the file holds."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from taut._base.npy_files import read_npy
from taut._base.optional import MissingPackageError, needing

TENSORS = (".npy", ".pt", ".safetensors")
SLACK = 1 << 20  # bytes that an archive may be larger inside than outside


def read_tensor(path: Path) -> torch.Tensor:
    """The one tensor in a file."""
    if not path.is_file():
        missing = f"there is no file {path}"
        raise ValueError(f"{path} is not a regular file" if path.exists() else missing)
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty")
    try:
        found = _loaded(path)
    except MissingPackageError:
        raise
    except Exception as error:  # each format has errors of its own
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot read a tensor from {path}: {why}") from None
    if isinstance(found, dict) and len(found) == 1:
        found = next(iter(found.values()))
    if not isinstance(found, torch.Tensor) or found.ndim < 2:
        raise ValueError(f"{path} must hold one tensor (batch, ...), not {_what(found)}")
    _refuse(found, path)
    return found.detach()


def _loaded(path: Path) -> Any:
    ending = path.suffix.lower()
    if ending == ".npy":
        found = read_npy(path)
        if found.dtype.kind not in "biuf":
            raise ValueError(f"it must hold real numbers; its type is {found.dtype}")
        return torch.from_numpy(found.astype(found.dtype.newbyteorder("="), copy=False))
    if ending == ".pt":
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inside = sum(part.file_size for part in archive.infolist())
            if inside > 2 * path.stat().st_size + SLACK:
                raise ValueError(f"its {path.stat().st_size:,} bytes claim to hold {inside:,}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.load(path, weights_only=True, map_location="cpu")
        except Exception:  # torch's own message recommends to run whatever is in there
            raise ValueError(
                "it is damaged, or holds other Python objects than tensors, which are not loaded; "
                "write it with torch.save(tensor, file)"
            ) from None
    with needing(f"{path} needs safetensors", "hf"):
        from safetensors.torch import load_file

    return load_file(path)


def _refuse(found: torch.Tensor, path: Path) -> None:
    """Refuse tensors that are not plain arrays of real numbers."""
    if found.layout != torch.strided or found.is_quantized or found.device.type != "cpu":
        raise ValueError(f"{path} must hold a dense tensor of plain numbers")
    if found.is_complex():
        raise ValueError(f"{path} must hold real numbers; its type is {found.dtype}")
    claimed, there = found.numel() * found.element_size(), found.untyped_storage().nbytes()
    if claimed > 2 * there + SLACK:  # a few numbers, repeated by strides of 0
        raise ValueError(
            f"{path} holds a tensor of shape {tuple(found.shape)} that repeats a few numbers: "
            "write it with torch.save(tensor.contiguous(), file)"
        )


def _what(found: Any) -> str:
    if isinstance(found, torch.Tensor):
        return f"a tensor of shape {tuple(found.shape)}"
    return f"{len(found)} tensors" if isinstance(found, dict) else f"a {type(found).__name__}"
