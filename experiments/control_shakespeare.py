"""What constraints do to a small GPT-2 on tiny Shakespeare.

Run by python experiments/control_shakespeare.py.
Five methods from the same three seeds; a run that is done is not done again. The results go to
docs/results/control.json; experiments/control_figure.py draws and tabulates them.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from text import batch, plays, tokenizer_for, tokens
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import GPT2Config, GPT2LMHeadModel

from taut import audit, control
from taut._base.files import write_whole

METHODS = ("plain", "VAR-III", "cap", "local constant", "cosine")
SEEDS = (0, 1, 2)
STEPS, BATCH, LENGTH, RATE = 600, 16, 64, 2e-3
EVERY = 20  # steps between two lines of a curve
STRENGTH, CAP, LIMIT, LOCAL = 1e-3, 1.0, 0.1, 3.0


def new_model(seed: int) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=512, n_positions=LENGTH, n_embd=64, n_layer=3, n_head=4,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def largest_sigma(model: GPT2LMHeadModel) -> float:
    """Of all maps of attention and feed-forward networks, by NumPy in double precision."""
    maps = [w.matrix() for b in control.find_blocks(model) for w in b.weights.values()]
    return max(float(np.linalg.norm(m.detach().double().numpy(), 2)) for m in maps)


def disagreement(constraint: control.Orthogonality) -> float:
    """The largest relative difference of verify() from NumPy's singular values."""
    worst = 0.0
    for row in constraint.verify():
        names = row.name
        block = next(
            b for b in constraint.blocks if names in (b.path, *map(str, b.weights.values()))
        )
        if block.path == names:
            parts = [
                w.matrix().mT if r == "output" else w.matrix() for r, w in block.weights.items()
            ]
        else:
            parts = [w.matrix() for w in block.weights.values() if str(w) == names]
        sigma = np.linalg.norm(torch.cat(parts).detach().double().numpy(), 2)
        assert row.largest <= row.certificates[0].upper
        worst = max(worst, abs(row.largest - sigma) / sigma)
    return worst


def layer_constants(model: GPT2LMHeadModel, swapped: list[control.Swapped], ids: torch.Tensor):
    """For each attention: certificate, constant at real inputs, and the largest that is found."""
    found = []
    model = copy.deepcopy(model)  # which no constraint watches
    for layer in swapped:
        seen: list[torch.Tensor] = []
        attention = model.get_submodule(layer.name)
        hook = attention.register_forward_pre_hook(
            lambda _, args, kwargs, seen=seen: seen.append((*args, *kwargs.values())[0]),
            with_kwargs=True,
        )
        with torch.no_grad():
            model(input_ids=ids)
        hook.remove()
        x = seen[0][:4].detach()
        mask = torch.full((LENGTH, LENGTH), torch.finfo(x.dtype).min).triu(1)[None, None]

        def attend(u, module=attention, mask=mask):
            with sdpa_kernel(SDPBackend.MATH):  # the only one with derivatives of derivatives
                return module(u, attention_mask=mask)[0]

        certificate = layer.lipschitz(LENGTH, mask="causal").upper
        found.append([certificate, _ascent(attend, x, 0), _ascent(attend, x, 40)])
    return found


def _ascent(function: Any, x: torch.Tensor, steps: int) -> float:
    """The norm of the derivative at x, by power iteration, while x climbs for some steps."""
    best = 0.0
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    x = x.clone()
    for step in range(steps + 1):
        for _ in range(20 if step in (0, steps) else 3):
            direction = direction / direction.norm(dim=(1, 2), keepdim=True)
            _, forth = torch.func.jvp(function, (x,), (direction,))
            best = max(best, float(forth.detach().norm(dim=(1, 2)).max()))
            direction = torch.func.vjp(function, x)[1](forth)[0]
        if step < steps:
            unit = direction / direction.norm(dim=(1, 2), keepdim=True)
            slope = torch.func.grad(
                lambda u, unit=unit: torch.func.jvp(function, (u,), (unit,))[1]
                .norm(dim=(1, 2)).log().sum()
            )(x)  # fmt: skip
            x = x + 0.1 * x.norm(dim=(1, 2), keepdim=True) * slope / slope.norm(
                dim=(1, 2), keepdim=True
            ).clamp(min=1e-30)
    return best


@torch.no_grad()
def held_out(model: GPT2LMHeadModel, pieces: torch.Tensor) -> float:
    losses = [model(input_ids=part, labels=part).loss.item() for part in pieces.split(50)]
    return sum(losses) / len(losses)


def run(method: str, seed: int, learn: torch.Tensor, pieces: torch.Tensor) -> dict[str, Any]:
    model = new_model(seed).train()
    swapped = control.swap_attention(model, "cosine", epsilon=1.0) if method == "cosine" else []
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    penalties: list[Any] = []
    watching = control.Orthogonality(model, "VAR-III", strength=STRENGTH).start()
    if method == "VAR-III":
        penalties = [watching]
    elif method == "local constant":
        penalties = [control.LocalConstant(model, limit=LIMIT, strength=LOCAL, seed=seed).start()]
    elif method == "cap":
        control.Projection(model, limit=CAP).start(optimizer)
    source = torch.Generator().manual_seed(seed)
    curve, sigmas, constants = [], [], []
    for step in range(STEPS):
        ids = batch(learn, BATCH, LENGTH, source)
        if swapped and step % 100 == 0:
            constants.append([step, layer_constants(model, swapped, pieces[:4])])
        loss = model(input_ids=ids, labels=ids).loss
        if step % EVERY == 0:
            parts = {name: round(value, 4) for name, value in watching.values().items()}
            curve.append({"step": step, "loss": round(loss.item(), 5), **parts})
        (loss + sum(p.penalty() for p in penalties)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if method == "cap":
            sigmas.append(largest_sigma(model))
    facts: dict[str, Any] = {"method": method, "seed": seed, "curve": curve}
    facts["verify against SVD"] = disagreement(watching)
    for constraint in (watching, *penalties):
        constraint.bake()
    model.eval()
    facts["held out"] = held_out(model, pieces)
    facts["sigma"] = largest_sigma(model)
    if sigmas:
        facts["largest sigma after each step"] = max(sigmas)
    if swapped:
        facts["attention: certificate, measured, searched"] = [
            *constants, [STEPS, layer_constants(model, swapped, pieces[:4])]
        ]  # fmt: skip
    else:
        heads = audit.run(model, [pieces[i : i + 16] for i in range(0, 64, 16)]).heads
        for name, key in (("mean constants", "mean"), ("entropies", "entropy")):
            facts[name] = [round(float(head[key]), 5) for head in heads]
        facts["largest constant"] = max(float(head["largest"]) for head in heads)
        facts["largest range of scores"] = max(float(head["range"]) for head in heads)
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/results/control.json"))
    parser.add_argument("--work", type=Path, default=Path("build/control"))
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    learn, test = plays()
    tokenizer = tokenizer_for(learn, 512)
    row, rest = tokens(tokenizer, learn), tokens(tokenizer, test)
    pieces = rest[: 200 * LENGTH].view(-1, LENGTH)
    runs = []
    for seed in SEEDS:
        for method in METHODS:
            kept = given.work / f"{method}-{seed}.json".replace(" ", "-")
            if not kept.exists():
                write_whole(json.dumps(run(method, seed, row, pieces)), kept)
            runs.append(json.loads(kept.read_text(encoding="utf-8")))
            print(f"{method}, seed {seed}: held out {runs[-1]['held out']:.4f}", flush=True)
    settings = {
        "command": "python experiments/control_shakespeare.py", "torch": torch.__version__,
        "steps": STEPS, "batch": BATCH, "length": LENGTH, "rate": RATE,
        "VAR-III": {"strength": STRENGTH}, "cap": CAP,
        "local constant": {"limit": LIMIT, "strength": LOCAL},
    }  # fmt: skip
    lines = ",\n".join(json.dumps(run) for run in runs)
    text = f'{{"settings": {json.dumps(settings)},\n"runs": [\n{lines}\n]}}\n'
    given.output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(text, given.output)


if __name__ == "__main__":
    main()
