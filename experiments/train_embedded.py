"""Train the small language models that ship with taut: python experiments/train_embedded.py KIND.

A GPT-2 of 0.7 million parameters learns tiny Shakespeare on one core in less than two hours: as it
is (plain), or constrained, from the same seed on the same text: no linear map of attention and
feed-forward networks stretches by more than CAP after any step, and rows of attention whose exact
local constant is above LIMIT cost. Progress is kept every 100 steps, and the same command goes on
from there.
"""

from __future__ import annotations

import argparse
import io
import json
import math
from pathlib import Path

import torch
from text import batch, plays, tokenizer_for, tokens
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from taut import control
from taut._base.files import write_whole

PIECES, PIECE = 48, 400  # of the held-out text ship as default data, of so many characters or more
STEPS, BATCH, LENGTH, RATE, WARM = 4000, 32, 128, 2e-3, 200
KEEP_EVERY = 100
CAP, LIMIT, STRENGTH = 1.0, 0.1, 3.0


def new_model(seed: int) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=512, n_positions=256, n_embd=96, n_layer=5, n_head=4,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
        resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


@torch.no_grad()
def held_out_loss(model: GPT2LMHeadModel, row: torch.Tensor) -> float:
    """Mean loss in nats over all of the held-out text."""
    model.eval()
    pieces = row[: len(row) // LENGTH * LENGTH].view(-1, LENGTH)
    losses = [model(input_ids=part, labels=part).loss.item() for part in pieces.split(64)]
    model.train()
    return sum(losses) / len(losses)


def rate(step: int) -> float:
    """Share of the full learning rate: a warm-up, then a cosine to a tenth."""
    if step < WARM:
        return (step + 1) / WARM
    return 0.55 + 0.45 * math.cos(math.pi * (step - WARM) / (STEPS - WARM))


def train(
    row: torch.Tensor, test: torch.Tensor, seed: int, kept: Path, constrained: bool
) -> GPT2LMHeadModel:
    model = new_model(seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1, betas=(0.9, 0.98))
    sharp = None
    if constrained:
        control.Projection(model, limit=CAP).start(optimizer)
        sharp = control.LocalConstant(model, limit=LIMIT, strength=STRENGTH, seed=seed).start()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    source = torch.Generator().manual_seed(seed)
    first = 0
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        source.set_state(state["source"])
        torch.set_rng_state(state["dropout"])
        if sharp is not None:
            sharp.load_state_dict(state["constraint"])
        first = state["step"]
    for step in range(first, STEPS):
        ids = batch(row, BATCH, LENGTH, source)
        loss = model(input_ids=ids, labels=ids).loss
        (loss if sharp is None else loss + sharp.penalty()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (step + 1) % KEEP_EVERY == 0:
            written = io.BytesIO()
            torch.save(
                {
                    "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(), "source": source.get_state(),
                    "dropout": torch.get_rng_state(), "step": step + 1,
                    "constraint": None if sharp is None else sharp.state_dict(),
                },
                written,
            )  # fmt: skip
            write_whole(written.getvalue(), kept)
            print(f"step {step + 1}: loss {loss.item():.3f}, held out "
                  f"{held_out_loss(model, test):.3f}", flush=True)  # fmt: skip
    if sharp is not None:
        sharp.bake()
    return model.eval()


def ship(
    model: GPT2LMHeadModel,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    facts: dict[str, object],
) -> None:
    """What is read back by `taut audit` without a model: half precision, safetensors."""
    model.half().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)
    write_whole(json.dumps(facts, indent=1) + "\n", folder / "training.json")


def pieces(text: str) -> list[str]:
    """Speeches that follow each other, put together until they are long enough."""
    found = [""]
    for speech in text.split("\n\n"):
        if len(found[-1]) >= PIECE:
            found.append("")
        found[-1] += f"{speech.strip()}\n\n"
    return [piece.strip() for piece in found[:PIECES]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["plain", "constrained"])
    parser.add_argument("--output", type=Path, default=Path("src/taut/models/_embedded"))
    parser.add_argument("--work", type=Path, default=Path("build/embedded"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    learn, test = plays()
    tokenizer = tokenizer_for(learn, 512)
    rows = tokens(tokenizer, learn), tokens(tokenizer, test)
    constrained = given.kind == "constrained"
    model = train(*rows, given.seed, given.work / f"{given.kind}-{given.seed}.pt", constrained)
    facts = {
        "text": "tiny Shakespeare, all but its last tenth",
        "seed": given.seed, "steps": STEPS, "batch": BATCH, "length": LENGTH, "rate": RATE,
        "held out loss": round(held_out_loss(model, rows[1]), 4),
        "torch": torch.__version__,
    }  # fmt: skip
    if constrained:
        facts["constraints"] = {"cap of singular values": CAP, "limit of local constants": LIMIT,
                                "strength": STRENGTH}  # fmt: skip
    ship(model, tokenizer, given.output / given.kind, facts)
    lines = json.dumps(pieces(test), indent=0, ensure_ascii=False)
    write_whole(lines + "\n", given.output / "sample.json")


if __name__ == "__main__":
    main()
