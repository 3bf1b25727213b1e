"""Cases that broke a certificate once: each must stay right or be refused."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import transformers  # noqa: E402

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402

nn = torch.nn


def test_writes_that_keep_the_sum_of_the_bits_are_seen():
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data.copy_(torch.diag(torch.tensor([2.0, 2.0])))
    assert tt.certify(layer, torch.ones(1, 2)).bound.upper[0] == pytest.approx(2.0)
    layer.weight.data.copy_(torch.diag(torch.tensor([1.0, 4.0])))
    assert tt.certify(layer, torch.ones(1, 2)).bound.upper[0] == pytest.approx(4.0)
    layer.weight.data.copy_(torch.tensor([[1.0, 4.0], [0.0, 0.0]]))
    assert tt.certify(layer, torch.ones(1, 2)).bound.upper[0] == pytest.approx(math.sqrt(17))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rms_norm_without_eps_takes_that_of_its_arithmetic(dtype):
    module = nn.RMSNorm(4).to(dtype)
    bound = tt.certify(module, taut.Ball(1.0, (2, 4)), measure=False).bound.upper[0]
    assert bound == pytest.approx(2.0**11.5, rel=1e-6)
    with pytest.raises(ValueError, match="eps"):
        tt.certify(nn.RMSNorm(4, elementwise_affine=False), torch.ones(1, 2, 4))


def test_softplus_jumps_at_its_threshold():
    with pytest.raises(TypeError, match="Softplus"):
        tt.certify(nn.Sequential(nn.Linear(2, 2), nn.Softplus(threshold=1)), torch.ones(1, 2))
    x = torch.full((1, 1), 20.0, dtype=torch.float64)
    certificate = tt.certify(nn.Softplus(), taut.At(x, 1e-6), measure=False)
    y = torch.nextafter(x, x + 1)
    moved = float((nn.functional.softplus(x) - nn.functional.softplus(y)).abs())
    allowed = certificate.bound.upper[0] * float(y - x) + 2 * certificate.execution_error[0]
    assert float(y - x) < moved <= allowed


def test_images_are_no_tokens():
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=6, num_attention_heads=2
    )
    patches = transformers.ViTModel(config).embeddings.patch_embeddings
    module = nn.Sequential(nn.Linear(8, 8), patches)
    with pytest.raises(ValueError, match="image"):
        tt.certify(module, taut.Ball(1.0, (3, 8, 8)))


@pytest.mark.parametrize("size", [1e-100, 1e-24, 1e-14, 1e-6, 1.0, 1e6, 1e24])
@pytest.mark.parametrize("keys", [8, 300])
def test_sizes_of_values_do_not_matter(size, keys):
    """Second moments of tiny values vanish in float32 unless they are scaled."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double().eval()
    with torch.no_grad():
        module.in_proj_weight[8:] *= size
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    context = 2 * torch.randn(1, keys, 4, dtype=torch.float64)
    exact = tt.local_lipschitz(module, x, context=context).value[0]
    bound = tt.certify(module, x, context=context, measure=False).bound.upper[0]
    assert exact <= bound <= 10 * exact


def test_weights_that_float32_cannot_hold_still_count():
    from taut.networks.operations.covariance_norm import spreads

    weights = torch.zeros(1, 300, dtype=torch.float64)
    weights[0, 0], weights[0, 1] = 1.0, 1e-46
    values = torch.zeros(300, 2, dtype=torch.float64)
    values[1, 0] = 1.0
    assert float(spreads(weights, values, None)[0]) >= 1e-46


def test_overflow_is_infinite_and_not_a_large_number():
    module = nn.MultiheadAttention(2, 1, bias=False, batch_first=True).double().eval()
    with torch.no_grad():
        module.in_proj_weight[:2] = 1e120 * torch.eye(2, dtype=torch.float64)
        module.in_proj_weight[2:4] = 1e-120 * torch.eye(2, dtype=torch.float64)
        module.in_proj_weight[4:] = 1e60 * torch.eye(2, dtype=torch.float64)
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    exact = tt.local_lipschitz(module, x).value[0]
    assert exact <= tt.certify(module, x, measure=False).bound.upper[0]


@pytest.mark.parametrize("field", ["scale", "softcap"])
def test_scales_that_are_not_positive_are_refused(field):
    eye = (torch.eye(2, dtype=torch.float64), None)
    heads = tt.Heads(eye, eye, eye, None, 1, 1, 1.0)._replace(**{field: -1.0})
    run = tt.Interpreter("l2", 0.0, torch.device("cpu"))
    from taut.networks.region import start

    with pytest.raises(ValueError, match=field):
        run.attention(start(torch.ones(1, 2, 2, dtype=torch.float64), 0.0), heads)


@pytest.mark.parametrize("size", [1e2, 1e5, 1e8])
def test_large_biases_of_keys_cost_digits(size):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(4, 2, batch_first=True).double().eval()
    with torch.no_grad():
        module.in_proj_bias[4:8] = size * torch.randn(4)
    x = torch.randn(1, 5, 4, dtype=torch.float64)
    exact = tt.local_lipschitz(module, x).lower[0]
    assert exact <= tt.certify(module, x, measure=False).bound.upper[0]


def test_norm_layers_with_a_large_offset():
    mp = pytest.importorskip("mpmath").mp
    layer = nn.LayerNorm(3, eps=1e-12).double()
    x = torch.tensor([[[1e9, 1e9 + 1, 1e9 + 3]]], dtype=torch.float64)
    with mp.workdps(40):
        values = [mp.mpf(float(v)) for v in x[0, 0]]
        mean = sum(values) / 3
        power = sum((v - mean) ** 2 for v in values) / 3
        exact = float(1 / mp.sqrt(power + mp.mpf(1e-12)))
    assert exact <= tt.certify(layer, x, measure=False).bound.upper[0]


@pytest.mark.parametrize("module", ["attention", "encoder"])
def test_masks_of_each_sample(module):
    torch.manual_seed(0)
    made = {
        "attention": lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        "encoder": lambda: nn.TransformerEncoderLayer(4, 2, 8),
    }[module]().eval()
    x = torch.randn(2, 3, 4)
    mask = torch.ones(2, 3, 3, dtype=torch.bool)
    mask[1] = mask[1].tril()
    both = tt.certify(made, x, mask=mask).bound.upper
    for index in range(2):
        alone = tt.certify(made, x[[index]], mask=mask[index]).bound.upper[0]
        assert both[index] == pytest.approx(alone, rel=1e-6)


def test_one_token_inputs_of_attention():
    module = nn.TransformerEncoderLayer(4, 2, 8).eval()
    assert tt.certify(module, torch.randn(3, 4)).bound.upper.shape == (3,)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: tt.certify(nn.Linear(4, 4), torch.ones(1, 2, 4), mask=torch.ones(2, 2) > 0),
         TypeError, "takes no mask"),
        (lambda: tt.certify(nn.TransformerDecoderLayer(4, 2).eval(), torch.ones(1, 2, 4)),
         TypeError, "needs context"),
        (lambda: tt.certify(nn.Linear(4, 4), torch.ones(1, 4), context=[1]), TypeError, "context"),
        (lambda: taut.At(torch.ones(1, 4), "a"), TypeError, "radius"),
        (lambda: tt.certify(nn.Linear(64, 64), torch.full((1, 64), 3e38)), ValueError, "overflows"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(make, error, words):
    torch.manual_seed(0)
    with pytest.raises(error, match=words):
        make()


def test_dropout_that_trains_alone_is_found():
    module = nn.TransformerEncoderLayer(4, 2, 8).eval()
    module.dropout.train()
    with pytest.raises(ValueError, match="eval"):
        tt.certify(module, torch.ones(1, 2, 4))


def test_spectral_norm_in_training_mode_is_refused():
    module = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).train()
    with pytest.raises(ValueError, match="training mode"):
        tt.certify(module, torch.ones(1, 4))


def test_inference_mode():
    module = nn.Linear(4, 4)
    with torch.inference_mode():
        assert tt.certify(module, torch.ones(1, 4)).measured is not None
        made = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="inference_mode"):
        tt.certify(made, torch.ones(1, 4))
    assert tt.certify(made, torch.ones(1, 4), measure=False).bound.upper[0] > 0


def test_buffers_may_hold_infinities():
    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(3, 3)
            self.register_buffer("mask", torch.full((3, 3), -math.inf).triu(1))

    assert tt.certify(Masked(), torch.ones(1, 3)).bound.upper[0] > 0


def test_ties_between_equal_rows_have_no_radius():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 33))
    x = torch.randn(1, 5)
    with torch.no_grad():
        net[2].weight[0] = net[1](net[0](x))[0]
        net[2].bias[0] = 1
        net[2].weight[32], net[2].bias[32] = net[2].weight[0], net[2].bias[0]
    for executed in (True, False):
        assert tt.certified_radius(net, x, executed=executed).radius[0] == 0


def test_margins_that_float64_cannot_tell_have_no_radius():
    """1e4·(1 + tiny) − 1e4·1: the margin is what rounding left of it."""
    layer = nn.Linear(3, 2, bias=False).double()
    x = torch.tensor([[1e8, -1e8, 1.0]], dtype=torch.float64) / 3
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.1, 0.1, 1e-9], [0.2, 0.2, 0.0]]))
    assert tt.certified_radius(layer, x, executed=False).radius[0] == 0


@pytest.mark.parametrize("at", [15.0, 20.0, 30.0])
def test_saturated_slopes_are_within_their_sides(at):
    x = torch.full((1, 1), at, dtype=torch.float64)
    exact = 1 / math.cosh(at) ** 2
    for method in ("jacobian", "probe"):
        found = tt.local_lipschitz(nn.Tanh(), x, method=method)
        assert found.lower[0] <= exact <= found.upper[0]


@pytest.mark.parametrize("size", [1e-170, 1e170])
def test_huge_and_tiny_derivatives(size):
    layer = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(size * torch.eye(2, dtype=torch.float64))
    x = torch.ones(1, 2, dtype=torch.float64)
    for method in ("jacobian", "probe"):
        found = tt.local_lipschitz(layer, x, method=method)
        assert found.lower[0] <= size <= found.upper[0]
    certificate = tt.certify(layer, x)
    assert certificate.measured.lower[0] <= size <= certificate.bound.upper[0]


def test_a_bound_does_not_underflow_to_zero():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double().eval()
    context = torch.randn(1, 8, 4, dtype=torch.float64)
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    # with flat weights the derivative is bilinear in the weights of keys and values
    flat = tt.local_lipschitz(module, 0 * x, context=context).lower[0]
    with torch.no_grad():
        module.in_proj_weight[4:] *= 1e-100
    bound = tt.certify(module, 1e90 * x, context=context, measure=False).bound.upper[0]
    assert bound >= flat * 1e-100 * 1e-100 * (1 - 1e-6)
    module = nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double().eval()
    with pytest.raises(ValueError, match="overflows"):
        tt.certify(module, 1e200 * torch.randn(1, 3, 4).double(), measure=False)


def test_local_lipschitz_wants_what_it_says():
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with pytest.raises(TypeError, match="fixed"):
        tt.local_lipschitz(layer, x, context=taut.At(x))
    with pytest.raises(ValueError, match="probability"):
        tt.local_lipschitz(layer, x, failure="a")
    with pytest.raises(TypeError, match="steps"):
        tt.certified_radius(layer, x, steps=1.5)


class Steeper(torch.nn.TransformerEncoderLayer):
    """A subclass that leaves forward as it is, and changes what forward calls."""

    def _ff_block(self, x):
        return super()._ff_block(x) + 100 * torch.relu(x.sum(-1, keepdim=True) - 1)


def test_a_subclass_that_changes_a_part_of_forward_has_no_rule():
    """Where the change does nothing at the input itself, comparing outputs cannot notice it."""
    layer = Steeper(4, 2, 8, dropout=0.0, batch_first=True).double().eval()
    plain = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).double().eval()
    x = torch.zeros(1, 2, 4, dtype=torch.float64)
    for function in (tt.certify, tt.propagate):
        with pytest.raises(tt.MissingRuleError, match="Steeper"):
            function(layer, taut.At(x, 1.0))
    tt.propagate(plain, taut.At(x, 1.0))
    plain._ff_block = lambda y: 2 * y
    with pytest.raises(ValueError, match="_ff_block of TransformerEncoderLayer was replaced"):
        tt.propagate(plain, taut.At(x, 1.0))


def test_a_subclass_that_changes_nothing_keeps_its_rule():
    class Named(torch.nn.TransformerEncoderLayer):
        def extra_repr(self):
            return "the same"

        def more(self):
            return 1

    layer = Named(4, 2, 8, dropout=0.0, batch_first=True).double().eval()
    x = torch.zeros(1, 2, 4, dtype=torch.float64)
    assert tt.propagate(layer, taut.At(x, 1.0)).bound.upper.shape == (1, 8)
