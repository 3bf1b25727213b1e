"""Which tokens of a batch are padding, for the encoder and the decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from taut.audit._layout import Rows


class Padding(NamedTuple):
    """True for real tokens, (samples, tokens); None where it is not known."""

    plain: torch.Tensor | None = None
    decoder: torch.Tensor | None = None
    pairs: bool = False  # whether encoder and decoder read different things

    @classmethod
    def of(cls, inputs: Any) -> Padding:
        """What the arguments of a model say."""
        if not isinstance(inputs, dict):
            return cls()
        pairs = any(name.startswith("decoder_input") for name in inputs)
        masks = (inputs.get(name) for name in ("attention_mask", "decoder_attention_mask"))
        plain, decoder = (
            m.bool() if isinstance(m, torch.Tensor) and m.ndim == 2 else None for m in masks
        )
        return cls(plain, decoder, pairs)

    def queries(self, path: str, rows: Rows) -> torch.Tensor | None:
        """Which queries of a layer are real, if its queries are the tokens of the input."""
        decodes = self.pairs and "decoder" in path.split(".")
        real = self.decoder if decodes else self.plain
        fits = real is not None and real.shape[1] == rows.scores.shape[2] and rows.windows == 1
        return real if fits else None

    def rows(self, sample: int, count: int) -> torch.Tensor | None:
        """Which of the final rows of a sample are real."""
        real = self.decoder if self.pairs else self.plain
        if real is None or real.shape[1] != count:
            return None
        return real[sample : sample + 1]
