"""Images as a model reads them, from files that need not be trusted."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from taut._base.optional import needing

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
MOST = 100_000_000  # pixels of an image; larger ones fill the memory when they are decoded
SIXTEEN = ("I", "I;16", "I;16B", "I;16L", "I;16N")  # Pillow would clip their values at 255


def image_size(model: nn.Module) -> tuple[int, int]:
    """Width and height of the images that a model takes."""
    size = getattr(getattr(model, "config", None), "image_size", 224)
    height, width = (size, size) if isinstance(size, int) else size
    return width, height


def pixels(pictures: Sequence[Any], model: nn.Module, name: str) -> torch.Tensor:
    """Images (files or Pillow images) at the model's size, normalised as its settings say."""
    return normalised_images(pictures, *image_preprocessing(model, name))


class ImagePreprocessing(NamedTuple):
    """Settings of the images that a model reads: width and height, mean and deviation."""

    size: tuple[int, int]
    mean: Sequence[float]
    deviation: Sequence[float]


def image_preprocessing(model: nn.Module, name: str) -> ImagePreprocessing:
    """Read the image settings that are stored with a model."""
    read = _preprocessor(name)
    mean = read.get("image_mean", [0.485, 0.456, 0.406])
    deviation = read.get("image_std", [0.229, 0.224, 0.225])
    return ImagePreprocessing(image_size(model), mean, deviation)


def normalised_images(
    pictures: Sequence[Any],
    size: tuple[int, int],
    mean: Sequence[float],
    deviation: Sequence[float],
) -> torch.Tensor:
    """Images (files or Pillow images) as (images, channels, height, width), normalised."""
    arrays = []
    for picture in pictures:
        with opened(picture) as image:
            small = _rgb(image).resize(size, _pillow().Resampling.BICUBIC)
        arrays.append((np.asarray(small) / 255.0 - mean) / deviation)
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float()


def _pillow() -> Any:
    with needing("images need Pillow", "hf"):
        from PIL import Image
    return Image


@contextmanager
def opened(picture: Any) -> Iterator[Any]:
    """Open an image unless it is one of Pillow's; errors name the file."""
    pillow = _pillow()
    if isinstance(picture, pillow.Image):
        yield picture
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)  # ours is lower
            with pillow.open(picture) as image:
                if image.width * image.height > MOST:
                    raise ValueError(
                        f"it has {image.width} × {image.height} pixels, more than {MOST:,}: make "
                        "it smaller"
                    )
                yield image
    except Exception as error:  # each format has errors of its own
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot read the image {picture}: {why}") from None


def _rgb(image: Any) -> Any:
    """The first frame, in RGB with 8 bits a channel."""
    if image.mode in SIXTEEN:
        values = np.clip(np.asarray(image, dtype=np.int64), 0, 65535)
        image = _pillow().fromarray((values / 257).round().astype(np.uint8))
    if image.mode == "F":
        raise ValueError("its pixels are real numbers without a known range: save it with 8 bits")
    return image.convert("RGB")


def oddities(pictures: Sequence[Any]) -> list[str]:
    """Remarks on images of which the model sees only a part."""
    frames = 0
    for picture in pictures:
        with opened(picture) as image:
            frames += getattr(image, "n_frames", 1) > 1
    return [f"{frames} of the images are animated; their first frame is used."] if frames else []


def _preprocessor(name: str) -> dict[str, Any]:
    """Settings of the model's preprocessor, from its folder or the Hub; empty if it has none."""
    file = Path(name) / "preprocessor_config.json"
    if not Path(name).exists() and ":" not in name:
        with needing("models by name need transformers", "hf"):
            from transformers.utils.hub import cached_file

        try:
            file = Path(cached_file(name, file.name) or file)
        except OSError:
            return {}
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text("utf-8"))
        for key in ("image_mean", "image_std"):
            if key in found and np.shape(np.asarray(found[key], dtype=float)) not in ((), (3,)):
                raise ValueError(f"{key} must be three numbers")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"cannot read {file}: {error}") from None
    return dict(found)
