"""Inputs for a model from files: tensors, text, images."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from taut._optional import needing
from taut.torch._load import gguf_parts
from taut.torch._pictures import IMAGES, pixels
from taut.torch._tensor_files import TENSORS, read_tensor
from taut.torch._text_files import Texts, is_there, read_texts

_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model",
                 "source.spm")  # fmt: skip


class Inputs(NamedTuple):
    """What goes into a model: embeddings or pixels, padding, what the encoder reads."""

    x: torch.Tensor
    mask: torch.Tensor | None
    context: torch.Tensor | None
    context_mask: torch.Tensor | None
    labels: list[str]
    notes: tuple[str, ...] = ()  # what is to be said about how they were read


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
        tensors = torch.cat([read_tensor(Path(item))[:limit] for item in given])[:limit]
        return Inputs(tensors, None, None, None, [str(i) for i in range(len(tensors))])
    if endings <= set(IMAGES):
        chosen = [Path(item) for item in given][:limit]
        return Inputs(pixels(chosen, model, name), None, None, None, [p.name for p in chosen])
    return _embedded(read_texts(given, limit), model, name, max_length)


def expanded(item: str) -> list[str]:
    """The files of a folder of images or of a pattern (images/*.png); else the item itself."""
    if is_there(item, Path.is_dir):
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


def tokenizer_of(name: str, revision: str | None = None) -> Any:
    """The tokenizer of a model, with something to pad with."""
    with needing("text needs transformers", "hf"):
        from transformers import AutoTokenizer
    place, more = gguf_parts(name)
    if Path(name).is_dir() and not any((Path(name) / file).exists() for file in _VOCABULARIES):
        raise ValueError(f"the folder {name} has no tokenizer ({', '.join(_VOCABULARIES)})")
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, **more)
    except Exception as error:  # a damaged file raises errors of all kinds
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"no tokenizer for {name!r}: {why}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _embedded(texts: Texts, model: Any, name: str, max_length: int) -> Inputs:
    """Word embeddings; for encoder-decoder models the text is read and one token is written."""
    if not hasattr(model, "get_input_embeddings"):
        raise ValueError("this model takes no text; give --inputs as a file of tensors")
    tokenizer, lines = tokenizer_of(name), texts.items
    cut = sum(len(ids) > max_length for ids in tokenizer(lines, verbose=False)["input_ids"])
    notes = texts.notes
    if cut:
        notes += (f"{cut} of {len(lines)} inputs were cut to {max_length} tokens (--max-length).",)
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
        return Inputs(x, mask, None, None, lines, notes)
    start = torch.full((len(lines), 1), start_token(model))
    with torch.no_grad():
        written = table(start.to(table.weight.device))
    scale = getattr(getattr(model.get_encoder(), "embed_scale", None), "__float__", lambda: 1.0)()
    return Inputs(written, None, x * scale, mask, lines, notes)


def start_token(model: Any) -> int:
    """What a decoder reads first."""
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    known = [getattr(model.config, name, None) for name in names]
    return int(next((token for token in known if token is not None), 0))
