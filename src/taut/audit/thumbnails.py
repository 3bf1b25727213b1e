"""Small pictures of images, as PNG in base64: written by hand, as a record needs no image library.

Colours are those that the model got, stretched from its smallest to its largest number, in 32
steps: a picture is there to be recognised, and should take few bytes.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Any

import torch

from taut.audit.record_checks import words

LONGEST = 56  # pixels of the longer side
LARGEST = 100_000  # characters of a picture in a file that is read
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def thumbnail(image: torch.Tensor) -> str:
    """A small picture of an image, (1 or 3 channels, height, width); nothing for others."""
    channels, height, width = image.shape
    if channels not in (1, 3) or not image.numel():
        return ""
    pixels = image.detach().float().cpu()
    if not bool(torch.isfinite(pixels).all()):
        return ""
    scale = min(1.0, LONGEST / max(height, width))
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    small = torch.nn.functional.adaptive_avg_pool2d(pixels[None], size)[0]
    low, high = small.min(), small.max()
    levels = ((small - low) / (high - low).clamp(min=1e-12) * 31).round() * (255 / 31)
    rows = levels.expand(3, *size).permute(1, 2, 0).to(torch.uint8).contiguous()
    return base64.b64encode(_png(rows.numpy().tobytes(), size)).decode("ascii")


def _png(pixels: bytes, size: tuple[int, int]) -> bytes:
    """RGB bytes as a PNG file."""
    height, width = size
    step = 3 * width
    lines = b"".join(b"\0" + pixels[i : i + step] for i in range(0, height * step, step))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


def checked_pictures(given: Any) -> dict[str, str]:
    """Pictures of a file, by sample; a ValueError where something else is called a picture."""
    for sample, picture in words(given).items():
        try:
            known = base64.b64decode(picture, validate=True)[:8] in (_SIGNATURE, b"")
        except binascii.Error:
            known = False
        if not known or len(picture) > LARGEST or not sample.isdecimal():
            raise ValueError("a picture is not a small PNG file in base64")
    return dict(given)
