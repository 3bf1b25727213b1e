"""Projection by all methods: the limit holds after every step of an optimiser."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from taut import control  # noqa: E402
from taut.control.constraints import reserve as reserve_file  # noqa: E402
from taut.control.constraints.reserve import Reserve  # noqa: E402

nn = torch.nn
METHODS = ("exact", "soft_cap", "hard_cap", "normalise")


def layer(seed=0):
    torch.manual_seed(seed)
    made = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
    for parameter in made.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    return made


def optimizer(name, model, lr=0.02):
    if name == "AdamW":
        return torch.optim.AdamW(model.parameters(), lr=lr)
    return torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=lr)


def largest(constraint):
    """The largest singular value of each part divided by its limit, by SVD in double precision."""
    found = []
    for block, role, weight in constraint._weights:
        for part in constraint._parts(block, role, weight):
            limit = constraint.limit
            if constraint.norm == "rms":
                limit = limit * math.sqrt(part.shape[0] / part.shape[1])
            found.append(float(torch.linalg.svdvals(part.double())[0]) / limit)
    return found


@pytest.mark.parametrize("name", ["Muon", "AdamW"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "options",
    [{}, {"reserve": 0.1, "norm": "rms", "per_head": True}],
    ids=["plain", "with-all-options"],
)
def test_the_limit_holds_after_every_step(name, method, options):
    top, changed = 0.0, 0.0
    for seed in range(3):
        model = layer(seed)
        steps = optimizer(name, model)
        cap = control.Projection(model, limit=0.8, method=method, **options).start(steps)
        assert max(largest(cap)) <= 1
        for _ in range(4):
            x = torch.randn(2, 5, 16)
            (5 * model(x) - x).square().mean().backward()
            steps.step()
            steps.zero_grad()
            top = max(top, *largest(cap))
            assert top <= 1  # after every single one
            changed += cap.values()["changed"]
        assert all(row.holds for row in cap.verify())
    assert top > 0.9  # it was needed
    assert changed or "reserve" in options or method == "normalise"


@pytest.mark.parametrize("method", METHODS[1:])
def test_steps_are_capped_without_a_decomposition(method, monkeypatch):
    model = layer()
    steps = optimizer("Muon", model, lr=0.01)
    cap = control.Projection(model, limit=1.0, method=method).start(steps)
    for used in ("eigh", "svd", "eigvalsh", "svdvals"):
        monkeypatch.setattr(torch.linalg, used, None)
    for _ in range(5):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        steps.step()
        assert cap.values()["decomposed"] == 0


def test_a_large_jump_is_cut_exactly_and_counted():
    model = layer()
    nn.init.orthogonal_(model.linear1.weight, gain=0.9)
    cap = control.Projection(model, limit=1.0, method="soft_cap", roles="first").start()
    assert cap.values() == {"changed": 0.0, "decomposed": 0.0}
    with torch.no_grad():
        model.linear1.weight.mul_(1e6)
    cap.after_step()
    assert cap.values() == {"changed": 1.0, "decomposed": 1.0}
    assert cap.verify()[0].holds


@pytest.mark.parametrize("reserve", [0.0, 0.1])
def test_loaded_weights_are_noticed_and_mended(reserve):
    model = layer()
    cap = control.Projection(model, limit=0.5, method="soft_cap", reserve=reserve).start()
    assert all(row.holds for row in cap.verify())
    model.load_state_dict(layer(1).state_dict())
    assert not all(row.holds for row in cap.verify())  # nothing is taken from before
    cap.after_step()
    assert all(row.holds for row in cap.verify())
    model.load_state_dict(layer(2).state_dict())
    assert all(row.holds for row in cap.start().verify())


@pytest.mark.theorem("cap-drift", "holds")
@pytest.mark.theorem("cap-drift", "attained")
@pytest.mark.theorem("cap-drift", "falsifiable")
def test_a_matrix_cannot_grow_by_more_than_it_moved():
    torch.manual_seed(0)
    nearest = 0.0
    for _ in range(200):
        old = torch.randn(6, 4, dtype=torch.float64)
        u, s, v = torch.linalg.svd(old, full_matrices=False)
        for move in (torch.randn(6, 4, dtype=torch.float64), 0.1 * torch.outer(u[:, 0], v[0])):
            new = torch.linalg.svdvals(old + move)[0]
            assert new <= s[0] + move.norm() + 1e-13
            nearest = max(nearest, float(new / (s[0] + move.norm())))
    assert nearest > 1 - 1e-12  # so 0.99 times the bound is exceeded


def test_a_reserve_is_used_up_before_anything_is_computed(monkeypatch):
    counted = []
    real = reserve_file.capped_stack
    monkeypatch.setattr(
        reserve_file, "capped_stack", lambda *args: (counted.append(len(args[0])), real(*args))[1]
    )
    torch.manual_seed(0)
    stack = torch.linalg.qr(torch.randn(3, 6, 4))[0]
    kept = Reserve(1.0, "soft_cap", 0.1)

    def after(matrices):
        changed, _ = kept.capped(list(matrices))
        now = torch.stack([changed.get(i, each) for i, each in enumerate(matrices)])
        assert float(torch.linalg.svdvals(now.double()).max()) <= 1
        return now

    now = after(stack)
    assert float(torch.linalg.svdvals(now).max()) <= 0.9
    u, _, v = torch.linalg.svd(now[1], full_matrices=False)
    along = torch.outer(u[:, 0], v[0])
    for _ in range(12):  # the worst direction, so that nothing may be missed
        now[1] += 0.02 * along
        now = after(now)
    assert counted[0] == 3
    assert 2 <= len(counted[1:]) <= 8  # of 12 steps
    assert set(counted[1:]) == {1}  # and only for the matrix that moved
    now[0] *= 3  # whatever has changed it
    after(now)


def test_frozen_tied_and_overlapping_weights():
    model = layer()
    model.linear1.weight.requires_grad_(False)
    control.Projection(model, limit=0.3, method="hard_cap").start()
    assert float(torch.linalg.svdvals(model.linear1.weight)[0]) <= 0.3

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = layer(0), layer(1)
            self.two.self_attn = self.one.self_attn
            self.two.linear1.weight = self.one.linear1.weight

    tied = Tied()
    cap = control.Projection(tied, limit=0.3, method="soft_cap", reserve=0.05)
    assert all(row.holds for row in cap.start().verify())
    weight = control.Weight("linear1.weight", model.linear1.weight)
    upper = weight._replace(rows=(0, 12))
    model = layer()
    block = control.Block(
        "",
        "feed-forward",
        {
            "first": control.Weight("linear1.weight", model.linear1.weight),
            "second": control.Weight("linear1.weight", model.linear1.weight, rows=upper.rows),
        },
    )
    cap = control.Projection(model, limit=0.3, blocks=[block]).start()
    assert all(row.holds for row in cap.verify())


def test_bad_options_say_what_is_wrong():
    model = layer()
    with pytest.raises(ValueError, match="method must be one of"):
        control.Projection(model, limit=1.0, method="soft")
    with pytest.raises(ValueError, match="norm must be one of"):
        control.Projection(model, limit=1.0, norm="frobenius")
    for reserve in (-0.1, 0.6, math.nan):
        with pytest.raises(ValueError, match="reserve"):
            control.Projection(model, limit=1.0, reserve=reserve)
    with pytest.raises(ValueError, match="need a limit"):
        control.Projection(model, limit=None, method="soft_cap")
    with pytest.raises(TypeError, match="half precision"):
        control.Projection(layer().half(), limit=1.0, method="soft_cap")
    cap = control.Projection(model, limit=1.0, method="soft_cap").start()
    before = model.linear1.weight.clone()
    with torch.no_grad():
        model.linear1.weight.mul_(1.2)
        model.linear2.weight[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"linear2.weight holds NaN"):
        cap.after_step()
    assert torch.equal(model.linear1.weight, 1.2 * before)  # nothing was changed
    assert not all(row.holds for row in cap.verify())  # NaN is no pass
    double = layer().double()
    assert all(r.holds for r in control.Projection(double, limit=0.1).start().verify())
