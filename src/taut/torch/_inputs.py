"""Inputs for a model from files: tensors, text, images."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from taut._optional import needing
from taut.torch._load import gguf_parts

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model",
                 "source.spm")  # fmt: skip
TENSORS = (".npy", ".pt", ".safetensors")


class Inputs(NamedTuple):
    """What goes into a model: embeddings or pixels, padding, what the encoder reads."""

    x: torch.Tensor
    mask: torch.Tensor | None
    context: torch.Tensor | None
    context_mask: torch.Tensor | None
    labels: list[str]


def read_inputs(
    given: list[str], model: nn.Module, name: str, *, limit: int, max_length: int
) -> Inputs:
    """Inputs from files of tensors (.npy, .pt, .safetensors), text (one input a line) or images.

    What is no file is taken as text itself.
    """
    if not given:
        raise ValueError("no inputs were given")
    given = [name for item in given for name in expanded(item)]
    endings = {Path(item).suffix.lower() for item in given}
    if endings <= set(TENSORS):
        tensors = torch.cat([read_tensor(Path(item)) for item in given])[:limit]
        return Inputs(tensors, None, None, None, [str(i) for i in range(len(tensors))])
    if endings <= set(IMAGES):
        chosen = [Path(item) for item in given][:limit]
        return Inputs(pixels(chosen, model, name), None, None, None, [p.name for p in chosen])
    return _embedded(text_lines(given)[:limit], model, name, max_length)


def expanded(item: str) -> list[str]:
    """The files of a folder of images or of a pattern (images/*.png); else the item itself."""
    if _is(item, Path.is_dir):
        inside = sorted(str(p) for p in Path(item).rglob("*") if p.suffix.lower() in IMAGES)
        if not inside:
            raise ValueError(f"there are no images in {item} ({', '.join(IMAGES)})")
        return inside
    if "*" in item and Path(item).suffix.lower() in (*IMAGES, *TENSORS):
        found = sorted(glob.glob(item))
        if not found:
            raise ValueError(f"there are no files {item}")
        return found
    return [item]


def _is(item: str, kind: Callable[[Path], bool]) -> bool:
    """Whether there is a file or folder of this name; what is too long for one is text."""
    try:
        return kind(Path(item))
    except (OSError, ValueError):
        return False


def text_lines(given: list[str]) -> list[str]:
    """Lines of text files; what is no file is text itself."""
    lines: list[str] = []
    for item in given:
        path = Path(item)
        if path.suffix.lower() in (*TENSORS, *IMAGES):
            raise ValueError("give inputs of one kind: tensors, images or text")
        if path.suffix.lower() == ".txt" or _is(item, Path.is_file):
            lines += [line for line in _text(path).splitlines() if line.strip()]
        else:
            lines.append(item)
    if not any(line.strip() for line in lines):
        raise ValueError(f"there is no text in {', '.join(given)}")
    return lines


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8") from None


def read_tensor(path: Path) -> torch.Tensor:
    """The one tensor in a file."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        found = _loaded(path)
    except Exception as error:  # each format has errors of its own
        raise ValueError(f"cannot read a tensor from {path}: {error}") from None
    if isinstance(found, dict) and len(found) == 1:
        found = next(iter(found.values()))
    if not isinstance(found, torch.Tensor) or found.ndim < 2:
        raise ValueError(f"{path} must hold one tensor (batch, ...), not {_what(found)}")
    return found


def _loaded(path: Path) -> Any:
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, allow_pickle=False))
    if path.suffix == ".pt":
        return torch.load(path, weights_only=True, map_location="cpu")
    with needing(f"{path} needs safetensors", "hf"):
        from safetensors.torch import load_file

    return load_file(path)


def _what(found: Any) -> str:
    if isinstance(found, torch.Tensor):
        return f"a tensor of shape {tuple(found.shape)}"
    return f"{len(found)} tensors" if isinstance(found, dict) else f"a {type(found).__name__}"


def pixels(pictures: Sequence[Any], model: nn.Module, name: str) -> torch.Tensor:
    """Images (files or of Pillow) at the model's size, with the mean and deviation it knows."""
    return normalised(pictures, *preprocessing(model, name))


def preprocessing(
    model: nn.Module, name: str
) -> tuple[tuple[int, int], Sequence[float], Sequence[float]]:
    """What a model makes of images before it sees them: width and height, mean and deviation."""
    size = getattr(getattr(model, "config", None), "image_size", 224)
    height, width = (size, size) if isinstance(size, int) else size
    read = _preprocessor(name)
    mean = read.get("image_mean", [0.485, 0.456, 0.406])
    deviation = read.get("image_std", [0.229, 0.224, 0.225])
    return (width, height), mean, deviation


def normalised(
    pictures: Sequence[Any],
    size: tuple[int, int],
    mean: Sequence[float],
    deviation: Sequence[float],
) -> torch.Tensor:
    """Images (files or of Pillow) as (images, colours, height, width), less their mean."""
    with needing("images need Pillow", "hf"):
        from PIL import Image
    arrays = []
    for picture in pictures:
        try:
            image = picture if isinstance(picture, Image.Image) else Image.open(picture)
            small = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
        except OSError as error:
            raise ValueError(f"cannot read the image {picture}: {error}") from None
        arrays.append((np.asarray(small) / 255.0 - mean) / deviation)
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float()


def _preprocessor(name: str) -> dict[str, Any]:
    """The settings of the model's preprocessor, in its folder or on the Hub; empty without one."""
    file = Path(name) / "preprocessor_config.json"
    if not Path(name).exists() and ":" not in name:
        with needing("models by name need transformers", "hf"):
            from transformers.utils.hub import cached_file

        try:
            file = Path(cached_file(name, file.name) or file)
        except OSError:
            return {}
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found


def tokenizer_of(name: str, revision: str | None = None) -> Any:
    """The tokenizer of a model, with something to pad with."""
    with needing("text needs transformers", "hf"):
        from transformers import AutoTokenizer
    place, more = gguf_parts(name)
    if Path(name).is_dir() and not any((Path(name) / file).exists() for file in _VOCABULARIES):
        raise ValueError(f"the folder {name} has no tokenizer ({', '.join(_VOCABULARIES)})")
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, **more)
    except (OSError, ValueError) as error:
        raise ValueError(f"no tokenizer for {name!r}: {str(error).splitlines()[0]}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _embedded(lines: list[str], model: Any, name: str, max_length: int) -> Inputs:
    """Word embeddings; for encoder-decoder models the text is read and one token is written."""
    if not hasattr(model, "get_input_embeddings"):
        raise ValueError("this model takes no text; give --inputs as a file of tensors")
    tokenizer = tokenizer_of(name)
    encoded = tokenizer(
        lines, return_tensors="pt", padding=True, truncation=True, max_length=max_length,
        padding_side="right",
    )  # fmt: skip
    table = model.get_input_embeddings()
    with torch.no_grad():
        x = table(encoded["input_ids"].to(table.weight.device))
    real = encoded["attention_mask"].bool()
    mask = None if bool(real.all()) else real
    if not getattr(model.config, "is_encoder_decoder", False):
        return Inputs(x, mask, None, None, lines)
    start = torch.full((len(lines), 1), start_token(model))
    with torch.no_grad():
        written = table(start.to(table.weight.device))
    scale = getattr(getattr(model.get_encoder(), "embed_scale", None), "__float__", lambda: 1.0)()
    return Inputs(written, None, x * scale, mask, lines)


def start_token(model: Any) -> int:
    """What a decoder reads first."""
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    known = [getattr(model.config, name, None) for name in names]
    return int(next((token for token in known if token is not None), 0))
