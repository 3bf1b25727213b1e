"""Run all benchmarks, print the tables and keep them in RESULTS.md with date and machine."""

from __future__ import annotations

from pathlib import Path

from benchmarks import (
    audit,
    certify,
    constants,
    control,
    explore,
    games,
    imports,
    jax_gradients,
    long_context,
    monitor,
    propagation_cost,
)
from benchmarks.machine import machine


def main() -> None:
    sections = {
        "Exact 1-, 2- and ∞-constants of every row against torch.softmax on the same tensor": (
            constants.against_softmax
        ),
        "One call at one row of eight logits": constants.one_call,
        "Backward pass of the mean l2 constant, one thread": constants.gradients,
        "Gradient of the mean l2 constant under jax.jit, one thread": jax_gradients.gradients,
        "Against other methods for the 2-norm (float64, logit scale 5, one thread)": (
            constants.against_other_methods
        ),
        "Growth in n and memory (float32, logit scale 5, one thread)": constants.growth,
        "Other constants (float64, logit scale 2, one thread)": constants.any_p,
        "Any p: upper/lower of the bracket, by interpolation and proved (60 rows, logit scales "
        "0.05 to 20)": constants.bracket_width,
        "Logit equilibria of zero-sum games, one at a time (Gaussian payoffs, gap 1e-10 τ)": (
            games.against_peers
        ),
        "A thousand small games at once (temperature/range 0.1)": games.batches,
        "2,000 strategies at a certified temperature, gap 1e-10, against its products": games.large,
        "Cost of a solution over temperature and size (Gaussian payoffs)": (
            games.cost_against_temperature
        ),
        "Nash equilibria by annealing, against the linear program": games.annealing,
        "Certificates of a whole model": certify.cost,
        "Propagated bounds against tokens, layers and width (processor time, one thread)": (
            propagation_cost.cost
        ),
        "Audit": audit.cost,
        "Audit of long contexts, against the forward pass with fused attention": (
            long_context.measured
        ),
        "Peak memory of an audit against the number of tokens (GPT-2 small's shape, two layers)": (
            long_context.memory
        ),
        "Peak memory of an audit, above the model and its libraries": audit.memory,
        "Constraints in a training step of transformer-base, 4,096 tokens": control.cost,
        "Peak memory of such a step, without words": control.memory,
        "Every weight of transformer-base below a limit, against a step of Muon": control.caps,
        "Feed-forward maps of an encoder kept in bounds, 4,096 tokens": control.peers,
        "A monitor at its default interval, steps of 2,048 tokens": monitor.cost,
        "Interactive page: work for a frame while something is dragged, which has 16 ms": (
            explore.frames
        ),
        "Import": imports.import_cost,
    }
    parts = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Times are the best of interleaved repeats; read the ratios.",
        "",
        machine(),
    ]
    for title, run in sections.items():
        text = run()
        print(f"\n{title}\n{text}", flush=True)
        parts += ["", f"## {title}", "", text]
    Path(__file__).with_name("RESULTS.md").write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
