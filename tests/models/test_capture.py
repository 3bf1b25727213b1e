"""Captured scores give the attention weights of the model itself, and the model stays as it was."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut import audit, models  # noqa: E402
from tests.helpers.architectures import attentions, names, tiny  # noqa: E402

nn = torch.nn
# DeBERTa and torch.compile use what PyTorch is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def captured(model, inputs):
    seen = []

    def visit(found):
        seen.append(found._replace(reader=models.WrittenScores(found.scores.clone())))

    with torch.no_grad(), audit.capture(model, visit) as watch:
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return seen, watch.missed


@pytest.mark.parametrize("name", names("capture"))
def test_scores_give_the_weights_that_the_model_gives_out(name):
    model, inputs = tiny(name)
    seen, missed = captured(model, inputs)
    assert not missed
    assert seen
    for found in seen:
        again = torch.softmax(found.scores.float(), dim=-1)
        assert torch.allclose(again, found.weights.float(), atol=1e-6)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        wanted = attentions(model(**inputs, output_attentions=True))
    assert len(wanted) <= len(seen)
    left = [found.weights for found in seen]
    for weights in wanted:
        match = [i for i, w in enumerate(left) if _same(w, weights)]
        assert match, tuple(weights.shape)
        left.pop(match[0])
    if name != "swin":  # gives out one map for each stage
        assert not left


def _same(mine, theirs):
    """Equal up to layout and, with sinks, up to the sink's column."""
    if mine.shape[-1] == theirs.shape[-1] + 1:
        mine = mine[..., :-1]
    if mine.numel() != theirs.numel():
        return False
    a, b = (torch.nan_to_num(t).flatten().sort().values for t in (mine.float(), theirs.float()))
    return torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "vit", "deberta"])
def test_outputs_while_watched_are_those_of_the_model(name):
    model, inputs = tiny(name)
    with torch.no_grad():
        plain = model(**inputs)
    with torch.no_grad(), audit.capture(model, lambda seen: None):
        watched = model(**inputs)
    assert type(watched) is type(plain)
    assert torch.equal(watched[0], plain[0])


def test_routers_and_classifiers_are_no_attention():
    model, inputs = tiny("mixtral")
    seen, _ = captured(model, inputs)
    assert [found.path for found in seen] == [f"model.layers.{i}.self_attn" for i in range(2)]

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return torch.softmax(self.linear(x), dim=-1)

    assert captured(Classifier(), torch.ones(2, 4)) == ([], [])


def modules():
    return {
        "attention": (nn.MultiheadAttention(8, 2, batch_first=True), lambda m, x: m(x, x, x)),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16), lambda m, x: m(x)),
        "stack": (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
            lambda m, x: m(x),
        ),
        "decoder": (nn.TransformerDecoderLayer(8, 2, 16), lambda m, x: m(x, x)),
    }


class Called(nn.Module):
    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, x):
        return self.call(self.module, x)


@pytest.mark.parametrize("mode", ["no_grad", "inference", "train", "grad"])
@pytest.mark.parametrize("name", list(modules()))
def test_modules_of_torch_in_every_mode(name, mode):
    model = Called(*modules()[name])
    model.train(mode == "train")
    seen = []
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(
        mode, torch.enable_grad
    )
    with context(), audit.capture(model, seen.append) as watch:
        model(torch.randn(3, 5, 8))
    assert len(seen) == {"attention": 1, "encoder": 1, "stack": 2, "decoder": 2}[name]
    assert not watch.missed


def test_functions_of_torch_and_compiled_models():
    class Own(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    for model in (Own(), torch.compile(Own())):
        seen = []
        with torch.no_grad(), audit.capture(model, seen.append):
            model(torch.randn(2, 4, 6, 8))
        assert [tuple(found.scores.shape[-2:]) for found in seen] == [(6, 6)]


def test_generation_is_watched_step_by_step():
    model, inputs = tiny("gpt2")
    seen = []
    with audit.capture(model, seen.append):
        model.generate(**inputs, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert len(seen) == 2 * 3


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails):
    model, inputs = tiny("bert")
    with torch.no_grad():
        before = model(**inputs).last_hidden_state
    implementation = model.config._attn_implementation
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    fast = torch.backends.mha.get_fastpath_enabled()

    def visit(_):
        if fails:
            raise KeyError("no")

    try:
        with torch.no_grad(), audit.capture(model, visit):
            model(**inputs)
    except KeyError:
        assert fails
    assert model.config._attn_implementation == implementation
    assert [(m._forward_hooks, m._forward_pre_hooks) for m in model.modules()] == hooks
    assert torch.backends.mha.get_fastpath_enabled() == fast
    with torch.no_grad():
        assert torch.equal(model(**inputs).last_hidden_state, before)


def test_a_fused_kernel_is_read():
    class Fused(nn.Module):
        def forward(self, x):
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0]

    seen, model = [], Fused()
    x = torch.randn(1, 2, 4, 8)
    with torch.no_grad(), audit.capture(model, seen.append) as watch:
        model(x)
    assert not watch.missed
    (found,) = seen
    assert found.fused
    assert torch.allclose(found.scores, x @ x.mT / 8**0.5, atol=1e-6)


def test_a_kernel_that_is_not_known_is_reported():
    class Unknown(nn.Module):
        def forward(self, x):
            return torch.ops.aten._native_multi_head_attention(
                x, x, x, 8, 2, torch.eye(24, 8), torch.zeros(24), torch.eye(8), torch.zeros(8)
            )[0]

    seen, model = [], Unknown()
    with torch.no_grad(), audit.capture(model, seen.append) as watch:
        model(torch.randn(1, 4, 8))
    assert not seen
    assert "attention" in watch.missed[0].operation
