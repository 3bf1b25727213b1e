"""Translate with beam search, as Zhang et al. 2021 do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taut._base.progress import shown
from taut.reproduce.seq2seq.batches import grouped, tensors
from taut.reproduce.seq2seq.subwords import END, Subwords

BEAMS, LENGTH_PENALTY = 4, 0.6


def answers(
    model: Any,
    subwords: Subwords,
    sources: Sequence[str],
    *,
    longest: int,
    latest: bool = False,
    beams: int = BEAMS,
    length_penalty: float = LENGTH_PENALTY,
    pieces: int = 4000,
) -> list[str]:
    """What the model makes of each source, in their order; too long ones are cut as in encoding.

    Notes
    -----
    Scores of beams are divided by lengthᵖ, p the penalty, as ``generate`` of transformers does;
    Tensor2Tensor, which the paper used, divides by ((5 + length)/6)ᵖ.
    """
    import torch

    rows = subwords.encode(sources, longest, latest=latest)
    encoded = [(row, [END]) for row in rows]
    batches = grouped(encoded, pieces)
    found: dict[int, str] = {}
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for batch in shown(batches, len(batches), "decoding"):
            given = tensors(encoded, batch)
            made = model.generate(
                input_ids=given["input_ids"].to(device),
                attention_mask=given["attention_mask"].to(device),
                num_beams=beams, length_penalty=length_penalty, do_sample=False,
                max_new_tokens=longest - 1,
            )  # fmt: skip
            texts = subwords.decode([row[1:] for row in made.tolist()])
            found.update(zip(batch, texts, strict=True))
    return [found[place] for place in range(len(rows))]
