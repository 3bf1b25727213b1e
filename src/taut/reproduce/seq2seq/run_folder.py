"""The folder of a run: whose it is, its facts, its pieces and its best weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from taut._base.files import write_whole
from taut._base.json_files import SEAL, read_json
from taut._base.json_files import checksum as checksum_of_facts
from taut.reproduce.seq2seq.checkpoint import best_name
from taut.reproduce.seq2seq.corpus import Corpus
from taut.reproduce.seq2seq.methods import prepared
from taut.reproduce.seq2seq.needed_packages import for_training
from taut.reproduce.seq2seq.read import checksum
from taut.reproduce.seq2seq.recipe import Recipe
from taut.reproduce.seq2seq.subwords import Subwords

FACTS, OWNER, PIECES = "facts.json", "recipe.json", "pieces.json"


def claim(folder: Path, recipe: Recipe, corpus: Corpus) -> None:
    """Write down whose folder this is, or refuse the folder of another run."""
    with for_training():
        from accelerate import PartialState

    told = identity(corpus, recipe)
    known = read_facts(folder / FACTS) or read_facts(folder / OWNER)
    if known is None and PartialState().is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(json.dumps(told, indent=1) + "\n", folder / OWNER)
    elif known is not None:
        other = [name for name, value in told["recipe"].items() if known["recipe"][name] != value]
        for name, said in (("checksum", "data"), ("latest", "latest"), ("processes", "processes")):
            other += [said] if known.get(name, told[name]) != told[name] else []
        if other:
            raise ValueError(
                f"{folder} belongs to a run with a different {', '.join(other)}: choose another "
                "folder"
            )
    PartialState().wait_for_everyone()


def identity(corpus: Corpus, recipe: Recipe) -> dict[str, Any]:
    """What decides a run; its batches also depend on how many processes share them."""
    with for_training():
        from accelerate import PartialState

    return {"recipe": recipe.to_dict(), "checksum": checksum(corpus), "latest": corpus.latest,
            "processes": PartialState().num_processes}  # fmt: skip


def read_facts(file: Path) -> dict[str, Any] | None:
    """What was written down, if anything was; the checksum may be missing, but not wrong."""
    if not file.exists():
        return None
    try:
        found: dict[str, Any] = read_json(file)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read ({error}): remove it to run again") from None
    if found.pop(SEAL, mark := checksum_of_facts(found)) != mark:
        raise ValueError(f"{file} was damaged, or edited by hand: remove it to run again")
    return found


def write_facts(facts: dict[str, Any], file: Path) -> None:
    """Write facts down with their checksum."""
    told = json.loads(json.dumps(facts))  # as it is read again: tuples are lists
    told[SEAL] = checksum_of_facts(told)
    write_whole(json.dumps(told, indent=1, ensure_ascii=False) + "\n", file)


def learnt_pieces(corpus: Corpus, recipe: Recipe, folder: Path) -> Subwords:
    """The pieces, learnt once for a run."""
    with for_training():
        from accelerate import PartialState

    file = folder / PIECES
    if not file.exists() and PartialState().is_main_process:
        texts = (text for pair in corpus.train for text in pair)
        Subwords.learn(texts, recipe.tokens, recipe.vocabulary).save(file)
    PartialState().wait_for_everyone()
    return Subwords.load(file)


def best_model(recipe: Recipe, folder: Path, step: int) -> Any:
    """The model with the weights of the best validation."""
    with for_training():
        from accelerate import PartialState
        from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder / best_name(step))
    prepared(model, recipe.method)
    return model.to(PartialState().device)
