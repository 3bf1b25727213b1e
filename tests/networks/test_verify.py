"""verify: proved, refuted or open, and never proved where a counterexample exists."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
optimize = pytest.importorskip("scipy.optimize")
import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.networks.verification import search as search_module  # noqa: E402
from taut.networks.verification.fingerprint import fingerprint  # noqa: E402
from taut.networks.verification.state import State, StateFile  # noqa: E402

nn = torch.nn


def perceptron(seed, widths=(2, 4, 3, 3)):
    torch.manual_seed(seed)
    parts = []
    for one, two in itertools.pairwise(widths):
        parts += [nn.Linear(one, two), nn.ReLU()]
    return nn.Sequential(*parts[:-1]).double(), torch.randn(1, widths[0], dtype=torch.float64)


def least_by_enumeration(net, x, radius, row):
    """Smallest value of a row on the output within l∞, by a linear program for each pattern."""
    layers = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in net[::2]]
    hidden = [len(b) for _, b in layers[:-1]]
    centre, best = x[0].numpy(), math.inf
    for pattern in itertools.product((0.0, 1.0), repeat=sum(hidden)):
        weight, bias = np.eye(len(centre)), np.zeros(len(centre))
        rows, limits, begin = [], [], 0
        for (w, b), many in zip(layers[:-1], hidden, strict=True):
            weight, bias = w @ weight, w @ bias + b
            signs = np.array(pattern[begin : begin + many])
            begin += many
            rows.append((1 - 2 * signs)[:, None] * weight)
            limits.append((2 * signs - 1) * bias)
            weight, bias = signs[:, None] * weight, signs * bias
        w, b = layers[-1]
        weight, bias = w @ weight, w @ bias + b
        found = optimize.linprog(
            row @ weight, np.concatenate(rows), np.concatenate(limits),
            bounds=list(zip(centre - radius, centre + radius, strict=True)),
        )  # fmt: skip
        if found.status == 0:
            best = min(best, found.fun + row @ bias)
    return best


@pytest.mark.theorem("split-multipliers", "holds")
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 10))]
)
def test_verdicts_are_those_of_enumeration(seed):
    net, x = perceptron(seed)
    label = int(net(x).argmax())
    rows = tt.margins([label], 3)[0].numpy()
    radius = 0.05
    for _ in range(4):
        least = min(least_by_enumeration(net, x, radius, row) for row in rows)
        found = tt.verify(net, taut.At(x, radius), norm=math.inf, time_limit=60.0)
        if abs(least) > 1e-5:
            assert found.verdict == ("proved" if least > 0 else "refuted"), (least, found)
        assert found.lower <= least or found.verdict == "proved"
        radius *= 2.5


class Pooled(nn.Module):
    """A transformer layer with ReLU, and a classifier of its mean token."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x).mean(dim=1))


@tt.register(Pooled)
def _pooled(run, module, x):
    pooled = run.mean(run(module.layer, x, "layer"))
    return run.linear(pooled, module.head.weight, module.head.bias, "head")


def small_transformer(seed):
    torch.manual_seed(seed)
    return Pooled().double().eval(), torch.randn(1, 3, 8, dtype=torch.float64)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_no_proof_beyond_an_attack(norm):
    for seed in range(2):
        net, x = small_transformer(seed)
        attack = tt.certified_radius(net, x, norm=norm, steps=2).attack_radius()[0]
        for share in (0.7, 1.02):
            found = tt.verify(net, taut.At(x, share * attack), norm=norm, time_limit=4.0)
            if share > 1:
                assert found.verdict != "proved"
            if found.verdict == "refuted":
                assert int(net(found.example).argmax()) != found.predicted
                step = (found.example - x).flatten()
                assert torch.linalg.vector_norm(step, ord=norm) <= share * attack


def test_branching_proves_more_than_bounds_alone(monkeypatch):
    net, x = perceptron(3, (4, 12, 12, 3))
    radius = float(tt.certified_radius(net, x, norm=math.inf).radius[0])
    attack = tt.certified_radius(net, x, norm=math.inf).attack_radius()[0]
    assert radius < 0.97 * attack
    found = tt.verify(net, taut.At(x, 0.97 * attack), norm=math.inf, time_limit=60.0)
    assert found.verdict == "proved"
    assert found.bounded > found.clauses
    assert found.lower > 0
    assert "split-multipliers" in found.theorem


def test_functions_clauses_and_thresholds():
    """|x| ≤ 1: x > −1.5 holds; x > −0.5 does not; x > −0.5 or −x > −0.5 does, by a mixture."""
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        net[0].bias.zero_()
        net[2].weight.copy_(torch.tensor([[1.0, -1.0]]))
        net[2].bias.zero_()
    domain = taut.At(torch.zeros(1, 1).double(), 1.0)
    both = torch.tensor([[1.0], [-1.0]]).double()
    ask = {"norm": math.inf, "targets": both, "time_limit": 30.0}
    assert tt.verify(net, domain, above=-1.5, **ask).verdict == "proved"
    found = tt.verify(net, domain, above=[-1.5, -0.5], **ask)
    assert found.verdict == "refuted"
    assert net(found.example).item() >= 0.5
    assert found.predicted is None
    assert tt.verify(net, domain, above=-0.5, clauses=[7, 7], **ask).verdict == "proved"


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(search_module, "SAVE_EVERY", 0.0)
    monkeypatch.setattr("taut.networks.verification.tree.BATCH", 2)
    net, x = perceptron(3, (4, 12, 12, 3))
    attack = tt.certified_radius(net, x, norm=math.inf).attack_radius()[0]
    domain, calls = taut.At(x, 0.97 * attack), []

    def stop(verdict):
        calls.append(verdict)
        if len(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tt.verify(net, domain, norm=math.inf, folder=tmp_path, progress=stop)
    assert calls[-1].verdict == "open"
    assert calls[-1].waiting > 0
    assert len(list(tmp_path.iterdir())) == 1
    seen = []
    found = tt.verify(net, domain, norm=math.inf, folder=tmp_path, progress=seen.append)
    assert found.verdict == "proved"
    assert min(each.bounded for each in seen) >= calls[-1].bounded
    whole = tt.verify(net, domain, norm=math.inf)
    assert whole.verdict == "proved"
    # decided: nothing is computed again, and another question has another file
    assert tt.verify(net, domain, norm=math.inf, folder=tmp_path).bounded == found.bounded
    tt.verify(net, domain, norm=2, folder=tmp_path, time_limit=0.0)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_state_of_other_relus_is_not_used(tmp_path):
    """Branches that do not fit the network of today would prove what is not true."""
    net, x = perceptron(3, (4, 12, 12, 3))
    domain = taut.At(x, 0.5)
    first = tt.verify(net, domain, norm=math.inf, folder=tmp_path, time_limit=0.0)
    assert first.verdict == "open"
    (file,) = tmp_path.iterdir()
    with np.load(file, allow_pickle=False) as data:
        word = str(data["told"])
    assert "fingerprint" in word
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="delete it to start again"):
        tt.verify(net, domain, norm=math.inf, folder=tmp_path)


def test_the_same_weights_in_another_network_are_another_question(tmp_path):
    """Another activation, or other heads, make another network: its verdict is its own."""
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    for weight, value in zip(net.parameters(), (1.0, 0.0, 1.0, 0.5), strict=True):
        nn.init.constant_(weight, value)
    other = nn.Sequential(net[0], nn.Identity(), net[2])
    x = torch.zeros(1, 1, dtype=torch.float64)
    wanted = {"domain": taut.At(x, 1.0), "targets": torch.ones(1, 1, dtype=torch.float64)}
    alone = [tt.verify(each, **wanted).verdict for each in (net, other)]
    assert alone == ["proved", "refuted"]
    kept = [tt.verify(each, **wanted, folder=tmp_path) for each in (net, other)]
    assert [each.verdict for each in kept] == alone
    assert len(list(tmp_path.iterdir())) == 2


def test_fingerprints_look_into_modules():
    def layer(heads=2, **more):
        torch.manual_seed(0)
        return nn.TransformerEncoderLayer(4, heads, 8, batch_first=True, **more)

    def leak(slope):
        found = nn.ReLU()
        found.other = lambda x: x * slope
        return found

    several = [
        layer(), layer(1), layer(norm_first=True), layer(activation="gelu"),
        layer(activation=functools.partial(nn.functional.leaky_relu, negative_slope=0.1)),
        layer(activation=functools.partial(nn.functional.leaky_relu, negative_slope=0.2)),
        layer(layer_norm_eps=1e-3), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2), leak(1.0), leak(2.0),
    ]  # fmt: skip
    assert len({fingerprint(each) for each in several}) == len(several)
    assert fingerprint(layer(), torch.ones(2)) == fingerprint(layer(), torch.ones(2))
    assert fingerprint(leak(1.0)) == fingerprint(leak(1.0))


def test_states_come_back_as_they_were(tmp_path):
    state = State(np.array([0.5, -1.0]), 7, 2.5, True, 1, np.ones((3, 2), np.int64),
                  (np.ones((2, 3)), np.zeros(2)), np.ones((1, 4)))  # fmt: skip
    file = StateFile(tmp_path, "a" * 64)
    file.write(state)
    found = file.read()
    for name in ("lower", "relus", "example"):
        assert np.array_equal(getattr(found, name), getattr(state, name))
    assert all(map(np.array_equal, found.branches, state.branches))
    plain = {"lower": None, "relus": None, "example": None, "branches": ()}
    assert replace(found, **plain) == replace(state, **plain)
    assert StateFile(None, "b").read() is None
    other = StateFile(tmp_path, "a" * 63 + "b")
    assert other.read() is None  # the name is the same, the question is not


def test_no_time_and_no_relus():
    net, x = perceptron(0)
    found = tt.verify(net, taut.At(x, 1e-3), time_limit=0.0)
    assert found.verdict == "open"
    assert found.lower == -math.inf
    smooth = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    assert tt.verify(smooth, taut.At(x, 1e-6)).verdict == "proved"
    margin = tt.certified_radius(smooth, x)
    between = (float(margin.radius[0]) + float(margin.attack_radius()[0])) / 2
    found = tt.verify(smooth, taut.At(x, between))
    assert found.verdict == "open"
    assert "nothing to branch on" in found.note
    assert "nothing to branch on" in str(found)


def test_float32_proofs_hold_as_executed():
    net, x = perceptron(1)
    found = tt.verify(net.float(), taut.At(x.float(), 1e-3))
    assert found.verdict == "proved"
    assert found.executed
    assert found.rounding == "proved"
    half = tt.verify(net.to(torch.bfloat16), taut.At(x.bfloat16(), 1e-3))
    assert half.rounding == "estimated"


def test_a_tie_is_refuted():
    net = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        net.weight.fill_(1.0)
    found = tt.verify(net, taut.At(torch.ones(1, 2).double(), 0.1))
    assert found.verdict == "refuted"


def test_verdicts_as_text_and_json():
    import json

    net, x = perceptron(1)
    proved = tt.verify(net, taut.At(x, 1e-3))
    assert str(proved).startswith("proved: class")
    assert json.loads(json.dumps(proved.to_dict()))["verdict"] == "proved"
    refuted = tt.verify(net, taut.At(x, 50.0))
    assert str(refuted).startswith("refuted")
    assert len(json.loads(json.dumps(refuted.to_dict()))["example"][0]) == 2


X = torch.randn(1, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda net: tt.verify(net, taut.At(X, 0.1), label=3), ValueError, "from 0 to 2"),
        (lambda net: tt.verify(net, taut.At(X, 0.1), label=-1), ValueError, "from 0 to 2"),
        (lambda net: tt.verify(net, taut.At(X, 0.0)), ValueError, "radius must be > 0"),
        (lambda net: tt.verify(net, taut.At(X, -1.0)), ValueError, "radius"),
        (lambda net: tt.verify(net, taut.At(X.repeat(2, 1), 1.0)), ValueError, "one input"),
        (lambda net: tt.verify(net, X), TypeError, "taut.At"),
        (lambda net: tt.verify(net, taut.At(X, 1.0), norm=3), ValueError, "norm must be"),
        (lambda net: tt.verify(net.train(), taut.At(X, 1.0)), ValueError, "eval"),
        (lambda net: tt.verify(net, taut.At(X, 1.0), label=1, targets=torch.ones(1, 3)),
         TypeError, "either label or targets"),
        (lambda net: tt.verify(net, taut.At(X, 1.0), targets=torch.ones(1, 4)),
         ValueError, "targets must be"),
        (lambda net: tt.verify(net, taut.At(X, 1.0), targets=torch.ones(2, 3), above=[1.0] * 3),
         ValueError, "above must be"),
        (lambda net: tt.verify(net, taut.At(X, 1.0), targets=torch.ones(2, 3), clauses=[0]),
         ValueError, "clauses must name"),
        (lambda net: tt.verify(net, taut.At(X, 1.0), targets=torch.ones(2, 3), above=math.nan),
         ValueError, "finite"),
        (lambda net: tt.verify(net, taut.At(X, 1.0), time_limit="long"), TypeError, "time_limit"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(ask, error, words):
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)).double().eval()
    with pytest.raises(error, match=words):
        ask(net)


def test_all_theorems_are_known():
    net, x = small_transformer(0)
    found = tt.verify(net, taut.At(x, 1e-4), norm=math.inf)
    assert {"split-multipliers", "affine-attention-below"} < set(found.theorem)
    assert set(found.theorem) <= set(taut.theorems.THEOREMS)
