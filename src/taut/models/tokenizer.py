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


def token_text(tokenizer: Any, token: int) -> str:
    """A token as a reader writes it, with a space in front where it begins a word.

    Tokenizers have their own signs for spaces and bytes (``Ġlove``, ``▁love``, ``##ing``). A token
    that is a part of a character keeps them, as no text says it alone.
    """
    name = str(tokenizer.convert_ids_to_tokens(token))
    if token in tokenizer.all_special_ids:
        return name
    if "▁" in name:
        return name.replace("▁", " ")
    if name.startswith("##"):
        return name[2:]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if type(getattr(backend, "model", None)).__name__ == "WordPiece":
        return f" {name}"
    text = str(tokenizer.decode([token], clean_up_tokenization_spaces=False))
    # Decoders of other tokenizers drop what they take for a space at the beginning.
    return name if "\ufffd" in text or not text else text


def start_token(model: Any) -> int:
    """The token that a decoder reads first."""
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    known = [getattr(model.config, name, None) for name in names]
    return int(next((token for token in known if token is not None), 0))
