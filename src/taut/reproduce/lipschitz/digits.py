"""MNIST's ten thousand test images, from IDX files: some to train on, some held out."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FILES = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
HELD_OUT = 1000
SIDE = 28


class Digits(NamedTuple):
    """Images (count, 1, 28, 28) with pixels in [0, 1], and their labels."""

    train: Tensor
    train_labels: Tensor
    held_out: Tensor
    held_out_labels: Tensor


def read_digits(folder: Path) -> Digits:
    """The images in an order drawn once and for all, of which the last tenth is held out."""
    images, labels = (_idx(_found(folder, name)) for name in FILES)
    if images.shape[1:] != (SIDE, SIDE) or len(images) != len(labels) or len(images) <= HELD_OUT:
        raise ValueError(
            f"{folder} holds images {images.shape} and labels {labels.shape}, which are not MNIST's"
        )
    order = np.random.default_rng(0).permutation(len(images))
    pixels = torch.from_numpy(images[order].astype(np.float32) / 255)[:, None]
    classes = torch.from_numpy(labels[order].astype(np.int64))
    return Digits(pixels[:-HELD_OUT], classes[:-HELD_OUT], pixels[-HELD_OUT:], classes[-HELD_OUT:])


def shifted(images: Tensor, source: torch.Generator, most: int = 1) -> Tensor:
    """Every image moved by up to so many pixels in each direction, with black coming in."""
    apart = torch.randint(0, 2 * most + 1, (2, len(images), 1), generator=source)
    row, column = torch.arange(SIDE) + apart
    wide = torch.nn.functional.pad(images, (most,) * 4)[:, 0]
    each = torch.arange(len(images))[:, None, None]
    return wide[each, row[:, :, None], column[:, None]][:, None]


def _found(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise FileNotFoundError(f"{folder} holds no {name}(.gz) of MNIST")


def _idx(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """An array of bytes: two zeros, 8 for bytes, the number of axes, their sizes, the entries."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not a file of bytes in the IDX format")
    axes = data[3]
    sizes = np.frombuffer(data, ">u4", axes, offset=4).astype(int)
    entries = np.frombuffer(data, np.uint8, offset=4 + 4 * axes)
    if len(entries) != sizes.prod():
        raise ValueError(f"{path} is cut short: {len(entries)} of {sizes.prod()} bytes")
    return entries.reshape(sizes)
