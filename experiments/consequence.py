"""Check the estimated consequence of noise on heads against interventions.

Run by python experiments/consequence.py, or with --model FILE --data FILE for another model.
For each of three seeds, consequences are estimated on some texts; then each head is disturbed for
real on other texts, and the KL divergence of the predictions is measured. A seed that is done is
not done again. The results go to docs/results/consequence.json, and a page beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from taut import audit
from taut._base.files import write_whole
from taut.models import Samples, batches, embedded_data, embedded_models, load, read_samples

RESULTS = Path("docs/results")
SEEDS = (0, 1, 2)
KINDS = ("scores", "keys", "values")
SHORTEST = 160  # letters, so that most texts fill the length that they are cut to


def one_seed(
    name: str, place: str, texts: list[str], seed: int, sizes: argparse.Namespace
) -> dict[str, Any]:
    """Estimate on some texts, intervene on others, and compare."""
    drawn = np.random.default_rng(seed).permutation(len(texts))
    chosen = [texts[index] for index in drawn[: sizes.estimated + sizes.disturbed]]
    model, options = load(place, dtype="float32"), {"max_length": sizes.length, "batch_size": 8}
    began = time.monotonic()
    record = audit.run(
        model, Samples("text", chosen[: sizes.estimated], "texts"), epsilons=[], norms=[2],
        tokenizer=place, consequence=sizes.estimated, seed=seed, **options,
    )  # fmt: skip
    middle = time.monotonic()
    others = Samples("text", chosen[sizes.estimated :], "texts")
    made = batches(others, model, place, [0], size=sizes.disturbed, max_length=sizes.length)
    inputs = [batch.inputs for batch in made]
    measured = audit.interventions(model, inputs, seed=seed, progress=True)
    ended = time.monotonic()
    rows = record.heads
    assert [(r["layer"], r["head"]) for r in rows] == [(r["layer"], r["head"]) for r in measured]
    found: dict[str, Any] = {
        "model": name, "seed": seed, "heads": len(rows),
        "texts": [sizes.estimated, sizes.disturbed], "length": sizes.length,
        "seconds": [round(middle - began, 1), round(ended - middle, 1)],
        "tokens disturbed": int(sum(batch["attention_mask"].sum() for batch in inputs)),
    }  # fmt: skip
    constants = [row["mean_1"] for row in rows]
    for kind in KINDS:
        estimate, real = ([row[f"kl_{kind}"] for row in each] for each in (rows, measured))
        found[kind] = {
            "spearman": round(float(spearmanr(estimate, real)[0]), 3),
            "spearman of the constant": round(float(spearmanr(constants, real)[0]), 3),
            "estimated over measured": round(sum(estimate) / sum(real), 3),
            "median standard error": round(
                statistics.median(row[f"kl_{kind}_error"] / row[f"kl_{kind}"] for row in rows), 3
            ),
            "estimated": [float(f"{value:.4g}") for value in estimate],
            "measured": [float(f"{value:.4g}") for value in real],
        }
    return found


def page(results: dict[str, Any]) -> str:
    """The results in words and a table."""
    lines = [
        "# Consequence: estimates against interventions", "",
        "One head at a time is disturbed for real, and the KL divergence of the predictions is",
        "measured, on texts that the estimates have not seen. Spearman's correlation is over all",
        "heads: the mean over seeds (smallest to largest). Estimated / measured is the ratio",
        "of the sums over all heads. The constant is the mean of 2p₁(1 − p₁), set against the same",
        "interventions. Every number of every head is in `consequence.json`.", "",
        "| model | heads | seeds | noise on | Spearman | estimated / measured | of the constant |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    models = dict.fromkeys(run["model"] for run in results["runs"])
    for model in models:
        runs = [run for run in results["runs"] if run["model"] == model]
        for kind in KINDS:
            names = ("spearman", "estimated over measured", "spearman of the constant")
            cells = [_spread([run[kind][name] for run in runs]) for name in names]
            place = f"{model} | {runs[0]['heads']} | {len(runs)} | {kind}"
            lines.append(f"| {place} | {' | '.join(cells)} |")
    lines += ["", "Made by:", "", "```sh", *results["commands"], "```", ""]
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--model", help="folder or file of a model; by default those of taut")
    asked.add_argument("--data", default="", help="texts for that model, as for taut audit")
    asked.add_argument("--name", default="", help="name of the model in the results")
    asked.add_argument("--estimated", type=int, default=24, help="texts that are estimated on")
    asked.add_argument("--disturbed", type=int, default=16, help="texts that are disturbed on")
    asked.add_argument("--length", type=int, default=64, help="tokens of a text")
    given = asked.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "consequence.json"
    results = json.loads(file.read_text()) if file.exists() else {"commands": [], "runs": []}
    if given.model:
        models = {given.name or given.model: given.model}
        texts = [str(text) for text in read_samples([given.data], 4000).items]
        texts = [text for text in texts if len(text) >= SHORTEST]
        said = (
            f"--model {Path(given.model).name} --data {Path(given.data).name} --name {given.name}"
        )
    else:
        models = {name: str(place) for name, place in embedded_models().items()}
        texts, said = [str(text) for text in embedded_data(1000).items], ""
    sizes = f"--estimated {given.estimated} --disturbed {given.disturbed} --length {given.length}"
    command = " ".join(f"python experiments/consequence.py {said} {sizes}".split())
    results["commands"] += [] if command in results["commands"] else [command]
    for name, place in models.items():
        for seed in SEEDS:
            if any((run["model"], run["seed"]) == (name, seed) for run in results["runs"]):
                continue
            results["runs"].append(one_seed(name, place, texts, seed, given))
            write_whole(json.dumps(results, indent=1) + "\n", file)
            write_whole(page(results), file.with_suffix(".md"))


if __name__ == "__main__":
    main()
