"""The tokenizer of a model, and the token that its decoder reads first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taut._base.optional import needing
from taut.models.load import gguf_parts

_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model",
                 "source.spm")  # fmt: skip


def tokenizer_of(name: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a model; one without a padding token pads with its last token."""
    with needing("text needs transformers", "hf"):
        from transformers import AutoTokenizer
    place, more = gguf_parts(name)
    if Path(name).is_dir() and not any((Path(name) / file).exists() for file in _VOCABULARIES):
        raise ValueError(f"the folder {name} has no tokenizer ({', '.join(_VOCABULARIES)})")
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, **more)
    except Exception as error:  # damaged files raise errors of all kinds
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"no tokenizer for {name!r}: {why}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def start_token(model: Any) -> int:
    """The token that a decoder reads first."""
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    known = [getattr(model.config, name, None) for name in names]
    return int(next((token for token in known if token is not None), 0))
