"""What constraints cost in a training step at transformer-base shape, against the plain step."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import torch
from torch import nn

from benchmarks.timing import table
from taut import control
from taut.control.constraints import affinity_penalty as _affinity
from taut.models import AttentionListener

WIDTH, INNER, HEADS, TOKENS, WORDS = 512, 2048, 8, 4096, 32000
STACK = 2  # layers of encoder and decoder each, where the stack is measured alone
STRENGTH = 1e-8
Step = Callable[[], None]


class Translator(nn.Module):
    """A transformer, bare or with words going in and out."""

    def __init__(self, layers: int, words: int) -> None:
        super().__init__()
        self.body = nn.Transformer(WIDTH, HEADS, layers, layers, INNER, batch_first=True)
        self.words = nn.Embedding(words, WIDTH) if words else None
        if self.words is not None:
            nn.init.normal_(self.words.weight, std=WIDTH**-0.5)  # or numbers too small slow it down

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """A loss."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        if self.words is None:
            return self.body(source, target, tgt_mask=mask, tgt_is_causal=True).square().mean()
        out = self.body(self.words(source), self.words(target), tgt_mask=mask, tgt_is_causal=True)
        logits = out @ self.words.weight.mT
        return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


SPENT = [0.0]  # seconds in attention's penalty: its value, and in the backward pass its derivative


def _clocked(summed: Callable[..., object]) -> Callable[..., object]:
    def run(*args: object) -> object:
        began = time.perf_counter()
        found = summed(*args)
        SPENT[0] += time.perf_counter() - began
        return found

    return run


_affinity._summed = _clocked(_affinity._summed)  # type: ignore[assignment]


def plain_penalty(model: nn.Module) -> torch.Tensor:
    """LA and LF as one would write them down."""
    total = torch.zeros(())
    for block in control.find_blocks(model):
        weights = [w.matrix() for w in block.weights.values()]
        joined = (
            [torch.cat([*weights[:3], weights[3].mT])] if block.kind == "attention" else weights
        )
        for w in joined:
            total = total + (w.mT @ w - torch.eye(w.shape[1])).square().sum()
    return total


def plain_affinity(model: nn.Module) -> list[torch.Tensor]:
    """AM as one would write it down: the weights of every head in the graph."""
    terms: list[torch.Tensor] = []

    def note(seen) -> None:
        scores = seen.query @ seen.key.mT * seen.factor
        if seen.bias is not None:
            scores = scores + seen.bias
        if seen.causal:
            hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
            scores = scores.masked_fill(hidden, -torch.inf)
        a = scores.softmax(dim=-1)
        terms.append((a.mT @ a - torch.eye(a.shape[-1])).square().sum() / len(a))

    modules = dict(model.named_modules())
    paths = [b.path for b in control.find_blocks(model) if b.kind == "attention"]
    AttentionListener({path: modules[path] for path in paths}, note, lambda: True)
    return terms


def make(method: str, length: int, layers: int = STACK, words: int = 0) -> Step:
    """A training step by one method, on a new model."""
    torch.manual_seed(0)
    model = Translator(layers, words).train()
    shape = (TOKENS // length, length)
    if words:
        inputs = torch.randint(words, (2, *shape)).unbind(0)
    else:
        inputs = torch.randn(2, *shape, WIDTH).unbind(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    penalties: list[Callable[[], torch.Tensor]] = []
    own: list[float] = []
    if method == "LA + LF":
        added = control.Orthogonality(model, ["LA", "LF"], strength=STRENGTH).add_gradients

        def before(*_: object) -> None:  # as before_step=True does, with a clock
            began = time.perf_counter()
            added()
            own.append(time.perf_counter() - began)

        optimizer.register_step_pre_hook(before)
    elif method == "LA + LF, written out":
        penalties.append(lambda: STRENGTH * plain_penalty(model))
    elif method == "AM, written out":
        terms = plain_affinity(model)
        penalties.append(lambda: STRENGTH * sum(terms.pop() for _ in range(len(terms))))
    elif method.startswith("AM"):
        probes = 4 if "4 probes" in method else 0
        affinity = control.Orthogonality(model, "AM", strength=STRENGTH, probes=probes)
        penalties.append(affinity.start().penalty)

    def step() -> None:
        SPENT[0] = 0.0
        optimizer.zero_grad()
        loss = model(*inputs)
        sum((penalty() for penalty in penalties), loss).backward()
        optimizer.step()
        if SPENT[0]:
            own.append(SPENT[0])

    step.own = own  # type: ignore[attr-defined]
    return step


def ratios(steps: dict[str, Step], repeats: int) -> dict[str, tuple[float, float]]:
    """Best seconds, and the median ratio to the plain step just before: noise hits both.

    Where a constraint's own time is known, the ratio is that of the step with and without it: steps
    differ by more than that, whatever is done in them.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    shares: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if turn:  # the first time is to warm up
                times[name].append(time.perf_counter() - began)
                own = getattr(step, "own", None)
                rest = times[name][-1] - own[-1] if own else times["plain"][-1]
                shares[name].append(times[name][-1] / rest)
    return {name: (min(times[name]), statistics.median(shares[name])) for name in steps}


def cost() -> str:
    rows = []
    bare, whole = (STACK, 0), (6, WORDS)
    for (layers, words), length, methods, repeats in (
        (whole, 64, ["LA + LF"], 2),
        (bare, 64, ["LA + LF", "LA + LF, written out", "AM, exact", "AM, written out"], 4),
        (bare, 512, ["AM, exact", "AM, 4 probes", "AM, written out"], 3),
    ):
        steps = {method: make(method, length, layers, words) for method in ["plain", *methods]}
        name = f"{layers} + {layers} layers" + (f", {words:,} words" if words else ", no words")
        for method, (seconds, ratio) in ratios(steps, repeats).items():
            rows.append([name, str(length), method, f"{seconds:.2f}", f"{ratio:.2f}"])
    return table(["model", "tokens of a sentence", "step", "seconds", "ratio"], rows)


_MEMORY = """
from pathlib import Path
from benchmarks.control import make
step = make({method!r}, {length})
step()
step()
lines = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")))
"""


def memory() -> str:
    """Peak memory of a step, in fresh processes; as Linux counts it."""
    rows = []
    for length in (64, 512):
        base = None
        for method in ("plain", "AM, exact", "AM, written out"):
            code = _MEMORY.format(length=length, method=method)
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            found = int(done.stdout)
            base = base or found
            rows.append([str(length), method, str(found), f"{found / base:.2f}"])
    return table(["tokens of a sentence", "step", "MB", "ratio"], rows)


def peers() -> str:
    """Ways to keep the feed-forward maps of an encoder in bounds, taut's and others'."""
    import geotorch
    from deel import torchlip
    from torch.nn.utils import parametrizations

    def encoder() -> nn.TransformerEncoder:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True)
        return nn.TransformerEncoder(layer, STACK).train()

    def parametrised(register: Callable[[nn.Module], object]) -> Callable[[nn.Module], None]:
        def apply(model: nn.Module) -> None:
            for linear in _maps(model):
                register(linear)

        return apply

    def torchlip_layers(model: nn.Module) -> None:
        for layer in model.layers:
            for name in ("linear1", "linear2"):
                old = getattr(layer, name)
                new = torchlip.SpectralLinear(old.in_features, old.out_features)
                setattr(layer, name, new)

    only = {"roles": ["first", "second"]}
    methods: dict[str, tuple[str, Callable[[nn.Module], object], bool]] = {
        "plain": ("", lambda model: None, False),
        "taut LF penalty": (
            "pulled to 1",
            lambda m: control.Orthogonality(m, "LF", strength=1e-2, before_step=True),
            True,
        ),
        "taut Projection, cap 1": (
            "at most 1", lambda m: control.Projection(m, limit=1.0, **only), True
        ),
        "torch spectral_norm": ("1", parametrised(parametrizations.spectral_norm), False),
        "taut SigmaReparametrisation": (
            "a gain", lambda m: control.SigmaReparametrisation(m, blocks=_forward(m)).start(), False
        ),
        "taut Projection, orthogonal": (
            "all 1", lambda m: control.Projection(m, limit=None, **only), True
        ),
        "torch orthogonal": ("all 1", parametrised(parametrizations.orthogonal), False),
        "torch orthogonal, Cayley": (
            "all 1",
            parametrised(lambda m: parametrizations.orthogonal(m, orthogonal_map="cayley")),
            False,
        ),
        "geotorch.orthogonal": (
            "all 1", parametrised(lambda linear: geotorch.orthogonal(linear, "weight")), False
        ),
        "deel-torchlip SpectralLinear": ("all 1", torchlip_layers, False),
    }  # fmt: skip
    steps, models = {}, {}
    for name, (_, apply, attach) in methods.items():
        model = models[name] = encoder()
        constraint = apply(model)
        # Weight decay would turn the maps of torch's orthogonal into zeros.
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        if attach:
            constraint.start(optimizer)
        x = torch.randn(TOKENS // 64, 64, WIDTH)

        def step(model=model, optimizer=optimizer, x=x) -> None:
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()

        steps[name] = step
    rows = []
    for name, (seconds, ratio) in ratios(steps, 2).items():
        models[name].eval()
        found = [torch.linalg.svdvals(m.weight.detach().double()) for m in _maps(models[name])]
        low, high = min(float(s[-1]) for s in found), max(float(s[0]) for s in found)
        rows.append(
            [name, methods[name][0], f"{low:.4f} to {high:.4f}", f"{seconds:.2f}", f"{ratio:.2f}"]
        )
    return table(["step", "singular values wanted", "found", "seconds", "ratio"], rows)


def caps(layers: int = 6, steps: int = 50) -> str:
    """Keeping every weight of transformer-base below a limit, against a plain step of Muon.

    All singular values begin at the limit, and every step is Muon's first one again, so that
    weights move as far as they can. Processor time: other programs do not count. A step of Muon is
    the best of three, a cap the mean over all steps, since a reserve makes some of them cheap.
    """
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, HEADS, layers, layers, INNER, batch_first=True)
    weights = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    for weight in weights:
        nn.init.orthogonal_(weight)
        weight.grad = torch.randn_like(weight)
    start = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.Muon(weights, lr=1e-3)
    plain = math.inf
    for turn in range(3):
        began = time.process_time()
        optimizer.step()
        plain = min(plain, time.process_time() - began)
        if turn == 0:
            moves = [new.detach() - old for new, old in zip(weights, start, strict=True)]
    rows = []
    for method, reserve, repeats in (
        ("soft_cap", 0.0, 3),
        ("soft_cap", 0.05, steps),
        ("soft_cap", 0.1, steps),
        ("soft_cap", 0.2, steps),
        ("hard_cap", 0.0, 3),
        ("hard_cap", 0.1, steps),
        ("normalise", 0.0, 3),
        ("exact", 0.0, 1),
    ):
        with torch.no_grad():
            for weight, old in zip(weights, start, strict=True):
                weight.copy_(old)
        cap = control.Projection(model, limit=1.0, method=method, reserve=reserve).start()
        changed = spent = 0.0
        for _ in range(repeats):
            with torch.no_grad():
                for weight, move in zip(weights, moves, strict=True):
                    weight.add_(move)
            began = time.process_time()
            cap.after_step()
            spent += (time.process_time() - began) / repeats
            changed += cap.values()["changed"] / repeats
        rows.append(
            [method, f"{reserve:g}", f"{changed:.1f}", f"{spent:.2f}", f"{1 + spent / plain:.2f}"]
        )
    rows.insert(0, ["none", "", "", f"{plain:.2f}", "1.00"])
    return table(["method", "reserve", "weights changed a step", "seconds", "ratio"], rows)


def _maps(model: nn.Module) -> Iterable[nn.Module]:
    return [linear for layer in model.layers for linear in (layer.linear1, layer.linear2)]


def _forward(model: nn.Module) -> list[control.Block]:
    return [block for block in control.find_blocks(model) if block.kind == "feed-forward"]
