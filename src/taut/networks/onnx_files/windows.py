"""Windows of convolutions and pooling."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from taut.networks.onnx_files.step import Step, UnknownOperationError


class Windows(NamedTuple):
    """How windows lie on an image of one or two axes, as attributes of ONNX say."""

    size: list[int]
    stride: list[int]
    dilation: list[int]
    pads: list[int]  # before each axis, then after each

    @property
    def around(self) -> list[int]:
        """Padding as torch takes it: last axis first, before and after."""
        axes = len(self.size)
        return [self.pads[axis + side * axes] for axis in range(axes)[::-1] for side in (0, 1)]


def windows(step: Step, size: list[int]) -> Windows:
    """The windows of an operation; padding that depends on the size of the image is refused."""
    axes = len(size)
    if step.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or step.get("ceil_mode", 0):
        raise UnknownOperationError(step, "auto_pad and ceil_mode are not supported")
    if axes not in (1, 2):
        raise UnknownOperationError(step, f"its windows have {axes} axes; 1 or 2 are supported")
    return Windows(
        size, list(step.get("strides", [1] * axes)), list(step.get("dilations", [1] * axes)),
        list(step.get("pads", [0] * 2 * axes)),
    )  # fmt: skip


def window_places(places: torch.Tensor, lie: Windows) -> tuple[torch.Tensor, list[int]]:
    """Places of each window's entries, (windows, channels·size), and how the windows lie.

    ``places`` is (1, channels, *image); padding is −1.
    """
    padded = functional.pad(places.double() + 1, lie.around)  # unfold adds up zeros, so from 1 on
    size, stride, dilation = (tuple(each) for each in lie[:3])
    if len(size) == 1:
        padded = padded[:, :, None]
        size, stride, dilation = (1, *size), (1, *stride), (1, *dilation)
    found = functional.unfold(padded, size, dilation, 0, stride)
    lattice = [
        (full - step * (wide - 1) - 1) // every + 1
        for full, wide, every, step in zip(padded.shape[2:], size, stride, dilation, strict=True)
    ]
    return (found[0].mT - 1).long(), lattice[-len(lie.size) :]


def pooled_places(step: Step, places: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """Places of each window of every channel by itself, (windows, size), and how they lie.

    ``places`` is (1, channels, *image); windows without a size are the whole image.
    """
    channels, image = places.shape[1], places.shape[2:]
    if step.kind.startswith("Global"):
        return places.reshape(channels, -1), [1] * len(image)
    lie = windows(step, list(step.get("kernel_shape")))
    found = [window_places(each[None], lie) for each in places.reshape(channels, 1, *image)]
    return torch.cat([part[0] for part in found]), found[0][1]
