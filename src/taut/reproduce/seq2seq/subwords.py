"""Subwords and characters: texts as numbers, through the tokenizers library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from taut._base.files import write_whole
from taut.reproduce.seq2seq.needed_packages import for_training

PAD, END, UNKNOWN = 0, 1, 2
SPECIAL = ("<pad>", "</s>", "<unk>")
KINDS = ("bpe", "unigram", "characters")
FEWEST = 16  # pieces of a vocabulary


class Subwords:
    """A vocabulary shared by source and target, which cuts texts into pieces."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def learn(cls, texts: Iterable[str], kind: str = "bpe", size: int = 4000) -> Subwords:
        """Learn a vocabulary from texts.

        Parameters
        ----------
        texts
            Texts of the training part alone: the others must stay unseen.
        kind
            ``"bpe"``, ``"unigram"`` or ``"characters"``.
        size
            Largest number of pieces; characters take what there are.
        """
        with for_training():
            from tokenizers import (
                Regex,
                Tokenizer,
                decoders,
                models,
                normalizers,
                pre_tokenizers,
                trainers,
            )

        if kind not in KINDS:
            raise ValueError(f"tokens must be one of {', '.join(KINDS)}, got {kind!r}")
        if size < FEWEST:
            raise ValueError(f"a vocabulary needs at least {FEWEST} pieces, got {size}")
        special = list(SPECIAL)
        if kind == "unigram":
            tokenizer = Tokenizer(models.Unigram())
            trainer: Any = trainers.UnigramTrainer(
                vocab_size=size, special_tokens=special, unk_token=SPECIAL[UNKNOWN],
                show_progress=False,
            )  # fmt: skip
        else:
            tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
            # The alphabet is always taken in; no room for more leaves single characters.
            trainer = trainers.BpeTrainer(
                vocab_size=0 if kind == "characters" else size, special_tokens=special,
                show_progress=False,
            )  # fmt: skip
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        tokenizer.train_from_iterator(texts, trainer)
        if tokenizer.get_vocab_size() <= len(SPECIAL):
            raise ValueError("there is no text to learn a vocabulary from")
        return cls(tokenizer)

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(
        self, texts: Sequence[str], longest: int, *, latest: bool = False
    ) -> list[list[int]]:
        """The pieces of each text, at most ``longest`` of them, the last one the end.

        What is too long loses its last pieces; with ``latest``, its first ones.
        """
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        kept = slice(1 - longest, None) if latest else slice(longest - 1)
        return [[*one.ids[kept], END] for one in found]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The texts of pieces, up to their ends."""
        cut = [row[: row.index(END)] if END in row else row for row in map(list, rows)]
        kept = [[piece for piece in row if piece != PAD] for row in cut]
        return [text.strip() for text in self._tokenizer.decode_batch(kept)]

    def save(self, file: Path) -> None:
        """Write it down; :meth:`load` reads it."""
        write_whole(self._tokenizer.to_str(), file)

    @classmethod
    def load(cls, file: Path) -> Subwords:
        """What :meth:`save` wrote."""
        with for_training():
            from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(file)))
