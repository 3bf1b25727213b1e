"""The protocol: the same verbs mean the same for every constraint."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch")
import taut  # noqa: E402
from taut import control  # noqa: E402

nn = torch.nn
KINDS = {
    "orthogonality": lambda m: control.Orthogonality(m, "VAR-III", strength=0.1),
    "before_step": lambda m: control.Orthogonality(m, ["LF"], strength=0.1, before_step=True),
    "local_constant": lambda m: control.LocalConstant(m, limit=0.01),
    "projection": lambda m: control.Projection(m, limit=0.3),
    "qk_clip": lambda m: control.QKClip(m, limit=0.01),
    "sigma_reparametrisation": control.SigmaReparametrisation,
    "soft_cap": lambda m: control.SoftCap(m, limit=0.01),
}
IN_THE_LOSS = {"orthogonality", "local_constant"}
IN_THE_MODEL = {"sigma_reparametrisation", "soft_cap"}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


def inputs():
    return torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(1))


def installed(model):
    """Hooks and methods that something has put onto the modules of a model."""
    return [
        module
        for module in model.modules()
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    ]


@torch.no_grad()
def computed(model):
    return model(inputs())


def step(model, optimizer, constraint):
    optimizer.zero_grad()
    loss = model(inputs()).square().mean()
    (loss + constraint.penalty()).backward()
    optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_happens_before_the_start(model, kind):
    before = copy.deepcopy(model)
    drawn = torch.get_rng_state()
    constraint = KINDS[kind](model)
    assert isinstance(constraint, control.Constraint)
    assert not constraint.running
    assert not installed(model)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert [type(m) for m in model.modules()] == [type(m) for m in before.modules()]
    assert list(model.state_dict()) == list(before.state_dict())
    assert all(map(torch.equal, model.state_dict().values(), before.state_dict().values()))
    for verb in (constraint.penalty, constraint.after_step, constraint.bake):
        with pytest.raises(RuntimeError, match=r"start\(\)"):
            verb()


@pytest.mark.parametrize("kind", KINDS)
def test_every_verb(model, kind):
    """In force from the start, verified with one kind of record, and gone after it was stopped."""
    plain = copy.deepcopy(model)
    constraint = KINDS[kind](model)
    if kind in IN_THE_MODEL:
        constraint.start()  # before the optimiser is made
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert constraint.start(optimizer) is constraint
    assert constraint.running
    for _ in range(3):
        step(model, optimizer, constraint)
    loss = model(inputs()).square().mean()
    penalty = constraint.penalty()
    assert constraint.has_penalty == (kind in IN_THE_LOSS) == bool(penalty > 0)
    assert (loss + penalty).ndim == 0
    rows = constraint.verify()
    assert rows
    for row in rows:
        assert isinstance(row, control.Verified)
        assert row.claim in str(row)
        assert kind == "qk_clip" or row.certificates
        for bound in row.certificates:
            assert isinstance(bound, taut.Bound)
            assert row.largest <= bound.upper
    output = computed(model)
    constraint.stop()
    constraint.stop()  # once more does no harm
    assert not constraint.running
    assert not installed(model)
    assert torch.equal(computed(model), output)
    with pytest.raises(RuntimeError, match=r"start\(\)"):
        constraint.penalty()
    assert constraint.bake() is model
    torch.testing.assert_close(computed(model), output, rtol=0, atol=1e-6)
    assert sorted(model.state_dict()) == sorted(plain.state_dict())


@pytest.mark.parametrize("kind", sorted(set(KINDS) - IN_THE_MODEL))
def test_what_was_stopped_acts_no_more(model, kind):
    """Steps after stop() are those of a model that nothing constrains; start() begins again."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    constraint = KINDS[kind](model).start(optimizer)
    step(model, optimizer, constraint)
    constraint.stop()
    other = copy.deepcopy(model)
    for each, steps in ((model, optimizer), (other, torch.optim.SGD(other.parameters(), lr=0.1))):
        steps.zero_grad()
        each(inputs()).square().mean().backward()
        steps.step()
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
    constraint.start(optimizer)
    step(model, optimizer, constraint)
    step(other, torch.optim.SGD(other.parameters(), lr=0.1), KINDS["qk_clip"](other).start())
    assert not all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))


def test_one_of_several_optimisers_can_be_left(model):
    first, second = (torch.optim.SGD(model.parameters(), lr=1.0) for _ in range(2))
    projection = control.Projection(model, limit=0.3).start(first, second)

    def held(optimizer):
        with torch.no_grad():
            model.linear1.weight.fill_(1.0)
        optimizer.zero_grad()
        optimizer.step()
        return all(row.holds for row in projection.verify())

    assert held(first)
    assert held(second)
    projection.stop(first)
    assert projection.running
    assert not held(first)
    assert held(second)
    projection.start(first)
    assert held(first)
    projection.start(first)  # a second time does not count twice
    assert len(first._optimizer_step_post_hooks) == 1


def test_steps_without_an_optimiser_of_torch(model):
    projection = control.Projection(model, limit=0.3).start()
    with torch.no_grad():
        model.linear1.weight.fill_(1.0)
    assert not all(row.holds for row in projection.verify())
    projection.after_step()
    assert all(row.holds for row in projection.verify())
    with pytest.raises(TypeError, match="optimisers of torch"):
        projection.start("adam")


def test_gains_must_be_trained(model):
    early = torch.optim.SGD(model.parameters(), lr=0.1)
    sigma = control.SigmaReparametrisation(model)
    with pytest.raises(ValueError, match="does not hold the gains"):
        sigma.start(early)
    assert sorted(model.state_dict()) == sorted(nn.TransformerEncoderLayer(8, 2, 16).state_dict())
    sigma.start()
    with pytest.raises(ValueError, match="does not hold the gains"):
        sigma.start(early)
    sigma.start(torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_certificate_of_weights_that_are_no_numbers(model):
    projection = control.Projection(model, limit=0.3).start()
    orthogonality = control.Orthogonality(model, "LF")
    with torch.no_grad():
        model.linear1.weight[0, 0] = torch.nan
    for constraint in (projection, orthogonality):
        broken = [row for row in constraint.verify() if row.name == "linear1.weight"]
        assert [row.holds for row in broken] == [False]
        assert all(bound.upper == torch.inf for bound in broken[0].certificates)


def distance_squared(w):
    """‖WᵀW − I‖² in exact arithmetic."""
    columns = list(zip(*[[Fraction(x) for x in row] for row in w.tolist()], strict=True))
    return sum(
        (sum(a * b for a, b in zip(x, y, strict=True)) - (i == j)) ** 2
        for i, x in enumerate(columns)
        for j, y in enumerate(columns)
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (7, 4), (4, 7)])
@pytest.mark.parametrize("scale", [1e-3, 0.3, 1e3, "orthogonal"])
def test_certificates_are_rounded_outward(shape, scale):
    """Never below √(1 + ‖WᵀW − I‖), also where most of WᵀW − I is rounding; hardly above it."""
    from taut.control.verified import orthogonality_certificate

    torch.manual_seed(0)
    for _ in range(10):
        w = torch.randn(shape, dtype=torch.float64)
        tall = shape[0] >= shape[1]
        if scale == "orthogonal":
            w = torch.linalg.qr(w)[0] if tall else torch.linalg.qr(w.mT)[0].mT
        else:
            w = scale * w
        small = w.mT @ w if tall else w @ w.mT
        rest = small - torch.eye(len(small), dtype=torch.float64)
        upper = orthogonality_certificate(w, rest).upper
        exact = distance_squared(w)
        assert upper >= 1
        assert (Fraction(upper) ** 2 - 1) ** 2 >= exact
        less = Fraction(upper * (1 - 1e-12))
        assert less < 1 or (less**2 - 1) ** 2 < exact


def test_a_constraint_must_verify():
    class Empty(control.Constraint):
        name = "empty"

    with pytest.raises(TypeError, match="verify"):
        Empty(nn.Linear(2, 2))
