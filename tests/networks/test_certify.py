"""Certificates of modules and models: never below the truth, on every family with rules."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from tests.helpers.architectures import CONTEXT, TOKENS, WIDTH, case, names, reads_context  # noqa: E402

SETTINGS = [(0, 1.0, 1.0), (1, 4.0, 0.5), (2, 8.0, 3.0)]


def call(model, x, context, mask=None):
    """The model as a user calls it, on (batch, tokens, width)."""
    from taut.networks.question import output_of
    from taut.networks.rule_register import find

    inputs = {} if context is None else {"context": context}
    if mask is not None:
        inputs["mask"] = mask
    return output_of(find(model).call(model, x, **inputs))


def jacobian(model, x, context):
    """The derivative of one sample, by reverse mode on the model itself."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found = torch.autograd.functional.jacobian(lambda z: call(model, z, context), x)
    return found.reshape(-1, x.numel()), found


def token_norm(found, x):
    """A lower bound on the norm from largest token to largest token, by its power method."""
    tokens = 1 if x.ndim == 4 else x.shape[1]
    blocks = found.reshape(-1, found.shape[-1 - x.ndim], tokens, x.numel() // tokens)
    best = 0.0
    for block in blocks:  # (width out, tokens in, width in): one token of the output
        v = torch.randn(tokens, block.shape[-1], dtype=block.dtype)
        for _ in range(20):
            v = v / v.norm(dim=1, keepdim=True).clamp(min=1e-30)
            image = torch.einsum("oti,ti->o", block, v)
            best = max(best, float(image.norm()))
            v = torch.einsum("oti,o->ti", block, image)
    return best


@pytest.mark.theorem("attn-core", "holds")
@pytest.mark.theorem("chain", "holds")
@pytest.mark.parametrize("name", names("certify"))
def test_local_bounds_hold_against_the_written_out_derivative(name):
    for seed, gain, scale in SETTINGS:
        model, x, context = case(name, seed=seed, gain=gain, scale=scale, batch=1)
        matrix, found = jacobian(model, x, context)
        # transformers computes some norms in float32
        exact = float(torch.linalg.matrix_norm(matrix, 2)) * (1 - 1e-5)
        l2 = tt.certify(model, x, context=context, measure=False)
        assert exact <= float(l2.bound.upper[0])
        token = tt.certify(model, x, norm="token", context=context, measure=False)
        assert token_norm(found, x) * (1 - 1e-5) <= float(token.bound.upper[0])


@pytest.mark.parametrize("name", names("certify"))
def test_local_lipschitz_is_the_norm_of_the_derivative(name):
    model, x, context = case(name, gain=2.0, batch=2)
    exact = tt.local_lipschitz(model, x, context=context, method="jacobian")
    probed = tt.local_lipschitz(model, x, context=context, method="probe", steps=6, directions=4)
    for index in range(2):
        here = None if context is None else context[[index]]
        matrix, _ = jacobian(model, x[[index]], here)
        truth = float(torch.linalg.matrix_norm(matrix, 2))
        assert exact.value[index] == pytest.approx(truth, rel=1e-5)
        assert probed.lower[index] <= exact.upper[index]
        assert exact.lower[index] <= probed.upper[index]


def worst_pair(model, domain, norm, context=None, steps=12, seed=0):
    """Ascent on ‖f(x) − f(y)‖/‖x − y‖ over pairs inside a domain."""
    torch.manual_seed(seed)
    near = isinstance(domain, taut.At)
    shape = domain.inputs.shape if near else (2, *domain.shape)
    raw = [torch.randn(shape, dtype=torch.float64) for _ in range(2)]
    raw[1] = raw[0] + 1e-2 * raw[1]

    def inside(z):
        size = z.flatten(1).norm(dim=1) if norm == "l2" or z.ndim == 4 else z.norm(dim=-1).amax(1)
        unit = z / size.clamp(min=1e-30).reshape(-1, *[1] * (z.ndim - 1))
        if near:
            return domain.inputs + float(domain.radius) * unit * torch.tanh(size).reshape(
                -1, *[1] * (z.ndim - 1)
            )
        token = (
            z.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
            if z.ndim == 4
            else z.norm(dim=-1, keepdim=True)
        )
        return z * (domain.radius / token).clamp(max=1.0)

    best = 0.0
    for _ in range(steps):
        leaves = [z.requires_grad_(True) for z in raw]
        a, b = (inside(z) for z in leaves)
        difference = call(model, a, context) - call(model, b, context)
        apart = a - b
        if norm == "token":
            difference = difference.reshape(len(apart), -1, difference.shape[-1])
            out = difference.norm(dim=-1).amax(dim=1)
            into = apart.flatten(1).norm(dim=1) if apart.ndim == 4 else apart.norm(dim=-1).amax(1)
        else:
            out, into = difference.flatten(1).norm(dim=1), apart.flatten(1).norm(dim=1)
        ratio = out / into
        best = max(best, float(ratio.max().detach()))
        slopes = torch.autograd.grad(ratio.log().sum(), leaves)
        raw = [
            (z + 0.1 * z.norm() * s / s.norm().clamp(min=1e-30)).detach()
            for z, s in zip(raw, slopes, strict=True)
        ]
    return best


@pytest.mark.parametrize(
    ("norm", "setting"),
    [("l2", 0), pytest.param("l2", 1, marks=pytest.mark.slow), ("token", 1)],
)
@pytest.mark.parametrize("name", names("certify"))
def test_no_pair_inside_a_domain_beats_its_bound(name, norm, setting):
    seed, gain, _ = SETTINGS[setting]
    model, x, context = case(name, seed=seed, gain=gain)
    fixed = None if context is None else context
    for radius in (1e-2, 1.0):
        domain = taut.At(x, radius)
        bound = tt.certify(model, domain, norm=norm, context=fixed, measure=False).bound
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            found = worst_pair(model, domain, norm, fixed, seed=seed)
        assert found * (1 - 1e-4) <= float(bound.upper.max())
    ball = taut.Ball(2.0, tuple(x.shape[1:]))
    inside = None if context is None else taut.Ball(2.0, (CONTEXT, WIDTH))
    bound = tt.certify(model, ball, norm=norm, context=inside, measure=False).bound
    if context is not None:
        context = context * (2.0 / context.norm(dim=-1, keepdim=True)).clamp(max=1.0)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found = worst_pair(model, ball, norm, context, seed=seed)
    assert found * (1 - 1e-4) <= float(bound.upper[0])


@pytest.mark.parametrize("name", names("certify"))
def test_measured_stays_below_and_a_larger_domain_has_a_larger_bound(name):
    model, x, context = case(name, gain=3.0)
    values = []
    for radius in (0.0, 1e-3, 1e-1):
        certificate = tt.certify(model, taut.At(x, radius), context=context)
        assert (certificate.measured.lower <= certificate.bound.upper).all()
        values.append(certificate.bound.upper)
    assert (values[0] <= values[1] * (1 + 1e-9)).all()
    assert (values[1] <= values[2] * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", [n for n in names("certify") if reads_context(n)])
def test_a_context_that_moves_is_bounded_too(name):
    model, x, context = case(name, gain=2.0, batch=1)
    certificate = tt.certify(model, x, context=taut.At(context))
    both = torch.cat((x.flatten(), context.flatten()))

    def joint(z):
        first = z[: x.numel()].reshape(x.shape)
        return call(model, first, z[x.numel() :].reshape(context.shape)).flatten()

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        matrix = torch.autograd.functional.jacobian(joint, both)
    exact = float(torch.linalg.matrix_norm(matrix, 2))
    assert exact * (1 - 1e-5) <= float(certificate.bound.upper[0])
    assert certificate.measured.lower[0] == pytest.approx(exact, rel=0.2)


def test_padding_is_not_seen():
    model, x, _ = case("bert")
    mask = torch.ones(2, TOKENS, dtype=torch.bool)
    mask[1, 3:] = False
    certificate = tt.certify(model, x, mask=mask)
    assert (certificate.measured.lower <= certificate.bound.upper).all()
    alone = tt.certify(model, x[[0]]).bound.upper[0]
    assert certificate.bound.upper[0] == pytest.approx(alone, rel=1e-6)


def test_models_of_images_take_other_sizes_where_they_do():
    model, _, _ = case("dinov2")
    x = torch.randn(1, 3, 12, 8, dtype=torch.float64)
    certificate = tt.certify(model, x)
    assert (certificate.measured.lower <= certificate.bound.upper).all()


@pytest.mark.theorem("attn-core", "attained")
def test_a_single_token_attains_the_attention_bound():
    module = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double().eval()
    with torch.no_grad():
        module.in_proj_weight[8:] = 2 * torch.eye(4)
        module.out_proj.weight.copy_(3 * torch.eye(4))
    x = torch.randn(1, 1, 4, dtype=torch.float64)
    assert tt.certify(module, x).bound.upper[0] == pytest.approx(6.0, rel=1e-8)


@pytest.mark.theorem("attn-core", "falsifiable")
def test_a_smaller_attention_bound_would_fail():
    module = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double().eval()
    with torch.no_grad():
        module.in_proj_weight[8:] = 2 * torch.eye(4)
        module.out_proj.weight.copy_(3 * torch.eye(4))
    certificate = tt.certify(module, torch.randn(1, 1, 4, dtype=torch.float64))
    assert certificate.measured.lower[0] > 0.99 * certificate.bound.upper[0]


def test_long_sequences_agree_with_short_arithmetic():
    """From 256 keys on second moments are summed in float32: the bound must stay above."""
    from taut.networks.operations.covariance_norm import spreads

    torch.manual_seed(0)
    weights = torch.softmax(4 * torch.randn(40, 300, dtype=torch.float64), dim=-1)
    for values in (torch.randn(300, 8), 1e3 + torch.randn(300, 8), torch.randn(300, 8) ** 9):
        values = values.double()
        centred = values - values.mean(dim=0)
        found = spreads(weights, centred, None)
        mean = weights @ centred
        exact = torch.stack(
            [
                torch.linalg.matrix_norm((centred - m).mT @ (w[:, None] * (centred - m)), 2)
                for w, m in zip(weights, mean, strict=True)
            ]
        )
        assert (found >= exact).all()
        assert (found <= 1.7 * exact + 1e-4 * (weights @ centred.square().sum(dim=1))).all()


def test_bounds_are_arrays_one_for_each_sample():
    model, x, _ = case("gpt2 base")
    certificate = tt.certify(model, torch.cat((x, 3 * x)))
    assert isinstance(certificate.bound.upper, np.ndarray)
    assert len(certificate.bound) == 4
