"""Words that may stand in the place of others: from a file of synonyms, or the nearest ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from taut._base.checks import whole_number
from taut.networks.word_changes import nearest


class WordReplacements(NamedTuple):
    """A text as a model reads it, and what may stand in the place of its words.

    Attributes
    ----------
    text
        The text.
    x
        Its embeddings, (1, tokens, width), for :func:`word_changes`.
    words
        For each token that may change, what may stand there.
    vectors
        The embeddings of these, (many, width), for :func:`word_changes`.
    places
        Where each of these tokens stands in the text: first character, and the one after the last.
    """

    text: str
    x: torch.Tensor
    words: dict[int, tuple[str, ...]]
    vectors: dict[int, torch.Tensor]
    places: dict[int, tuple[int, int]]

    def replaced(self, example: Mapping[int, int]) -> str:
        """The text with the replacements of an example of :class:`WordChanges`."""
        found = self.text
        for token in sorted(example, key=lambda each: -self.places[each][0]):
            begin, end = self.places[token]
            found = found[:begin] + self.words[token][example[token]] + found[end:]
        return found


def read_synonyms(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Read a file of synonyms.

    Parameters
    ----------
    path
        A .json file with one object, ``{"film": ["movie", "picture"]}``, or text with one word a
        line, ``film: movie, picture``. In text, empty lines and lines that begin with # are left
        out.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not valid UTF-8 text") from None
    entries = _from_json(text, path) if path.suffix == ".json" else _from_lines(text, path)
    found: dict[str, tuple[str, ...]] = {}
    for word, others, where in entries:
        if word in found:
            raise ValueError(f"{where}: the word {word!r} has synonyms already")
        kept = tuple(dict.fromkeys(other for other in others if other != word))
        if not word or not kept or not all(kept):
            raise ValueError(f"{where}: {word!r} needs at least one other word, and none is empty")
        found[word] = kept
    if not found:
        raise ValueError(f"{path} has no words")
    return found


def _from_json(text: str, path: Path) -> list[tuple[str, Sequence[str], str]]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(found, dict) or not all(
        isinstance(each, list) and all(isinstance(word, str) for word in each)
        for each in found.values()
    ):
        raise ValueError(f'{path} must be one object with lists of words: {{"film": ["movie"]}}')
    return [(word, others, str(path)) for word, others in found.items()]


def _from_lines(text: str, path: Path) -> list[tuple[str, Sequence[str], str]]:
    found: list[tuple[str, Sequence[str], str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, colon, rest = line.partition(":")
        where = f"{path}, line {number}"
        if not colon:
            raise ValueError(f"{where}: expected 'word: replacement, replacement', got {line!r}")
        found.append((word.strip(), [other.strip() for other in rest.split(",")], where))
    return found


def synonym_replacements(
    model: Any, tokenizer: Any, text: str, synonyms: Mapping[str, Sequence[str]]
) -> WordReplacements:
    """The words of a text that have synonyms, with the embeddings of these.

    Parameters
    ----------
    model, tokenizer
        A model of Hugging Face, and its fast tokenizer.
    text
        The text. Every word of it that has synonyms, and every one of these in its place, must be
        one token of the model, because a certificate is for texts of one length.
    synonyms
        From :func:`read_synonyms`; a word of the text counts as its lower-case form if it has no
        entry itself.
    """
    ids, places = _encoded(tokenizer, text)
    words: dict[int, tuple[str, ...]] = {}
    chosen: dict[int, list[int]] = {}
    for token, (begin, end) in _whole_words(ids, places, text, synonyms).items():
        word = text[begin:end]
        others = tuple(synonyms[word if word in synonyms else word.lower()])
        words[token] = others
        chosen[token] = [
            _one_token(tokenizer, text, (begin, end), other, ids, token) for other in others
        ]
    if not words:
        raise ValueError(f"no word of {text!r} has synonyms in the file")
    return _replacements(model, text, ids, places, words, chosen)


def nearest_replacements(model: Any, tokenizer: Any, text: str, count: int) -> WordReplacements:
    """Every token of a text with those of the vocabulary whose embeddings are nearest in l2.

    Special tokens stay as they are, and are never put in a place.
    """
    count = whole_number(count, name="count", least=1)
    ids, places = _encoded(tokenizer, text)
    special = set(tokenizer.all_special_ids)
    table = model.get_input_embeddings().weight
    chosen = {
        token: nearest(table, word, count, special).tolist()
        for token, word in enumerate(ids)
        if word not in special and places[token][0] < places[token][1]
    }
    if not chosen:
        raise ValueError(f"{text!r} has no tokens that may change")
    words = {
        token: tuple(tokenizer.decode([one]).strip() for one in found)
        for token, found in chosen.items()
    }
    return _replacements(model, text, ids, places, words, chosen)


def _encoded(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Tokens of a text, and the characters of each; none for special tokens."""
    if not getattr(tokenizer, "is_fast", False):
        raise TypeError(
            f"{type(tokenizer).__name__} does not say where its tokens stand in a text; use a fast "
            "tokenizer"
        )
    found = tokenizer(text, return_offsets_mapping=True, verbose=False)
    places = []
    for begin, end in found["offset_mapping"]:
        while begin < end and text[begin].isspace():  # some tokens hold the space before a word
            begin += 1
        places.append((begin, end))
    return list(found["input_ids"]), places


def _whole_words(
    ids: list[int], places: list[tuple[int, int]], text: str, synonyms: Mapping[str, Sequence[str]]
) -> dict[int, tuple[int, int]]:
    """The tokens that are words with synonyms; a word of several tokens is refused."""
    found: dict[int, tuple[int, int]] = {}
    token = 0
    while token < len(ids):
        begin, end = places[token]
        last = token
        # a word goes on as long as letters follow without anything between them
        while last + 1 < len(ids) and places[last + 1][0] == end and _inside(text, end):
            last += 1
            end = places[last][1]
        word = text[begin:end]
        if begin < end and (word in synonyms or word.lower() in synonyms):
            if last > token:
                raise ValueError(
                    f"the word {word!r} is {last - token + 1} tokens of this model; only words of "
                    "one token can be replaced: take it out of the synonyms"
                )
            found[token] = (begin, end)
        token = last + 1
    return found


def _inside(text: str, at: int) -> bool:
    """Whether a word goes on at a character."""
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _one_token(
    tokenizer: Any, text: str, place: tuple[int, int], other: str, ids: list[int], token: int
) -> int:
    """The token of a replacement in its place, or an error if it is not one token."""
    moved = text[: place[0]] + other + text[place[1] :]
    found = _encoded(tokenizer, moved)[0]
    same = len(found) == len(ids) and all(
        one == two for at, (one, two) in enumerate(zip(ids, found, strict=True)) if at != token
    )
    unknown = getattr(tokenizer, "unk_token_id", None)
    word = text[place[0] : place[1]]
    if not same:
        raise ValueError(
            f"the replacement {other!r} of {word!r} is not one token of this model in its place: "
            "take it out of the synonyms"
        )
    if found[token] == unknown:
        raise ValueError(f"the replacement {other!r} of {word!r} is not in the vocabulary")
    return int(found[token])


def _replacements(
    model: Any,
    text: str,
    ids: list[int],
    places: list[tuple[int, int]],
    words: dict[int, tuple[str, ...]],
    chosen: dict[int, list[int]],
) -> WordReplacements:
    table = model.get_input_embeddings()
    with torch.no_grad():
        x = table(torch.tensor([ids], device=table.weight.device))
        vectors = {
            token: table(torch.tensor(found, device=table.weight.device))
            for token, found in chosen.items()
        }
    return WordReplacements(text, x, words, vectors, {token: places[token] for token in words})
