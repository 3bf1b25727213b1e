"""A monitor tells the truth about attention in training, and training does not notice it."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import random
import subprocess
import sys
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from taut.control import AttentionWarning, Constraint, Monitor  # noqa: E402
from taut.control.monitor.alarms import Alarms  # noqa: E402
from taut.control.monitor.layer_measurement import LayerMeasurement  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn
# torch.compile uses what PyTorch is about to drop; an unknown loss type is logged by GPT-2.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
NAMES = ("largest_score", "entropy", "local_constant", "largest_constant")


def gpt2(**settings):
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "loss_type": "ForCausalLMLoss"}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends, **settings))


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def loss_of(model, ids):
    return model(input_ids=ids, labels=ids).loss


def batches(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 60, (2, 7), generator=generator) for _ in range(count)]


def slow(scores):
    """The numbers of one head by dense linear algebra, from its rows of scores."""
    rows = scores.reshape(-1, scores.shape[-1]).double()
    constants, entropies = [], []
    for row in rows:
        p = torch.softmax(row, dim=0).numpy()
        constants.append(np.linalg.norm(np.diag(p) - np.outer(p, p), 2))
        entropies.append(-sum(x * math.log(x) for x in p if x > 0))
    return (float(rows.max()), np.mean(entropies), np.mean(constants), np.max(constants))


def check(values, name, scores):
    """Compare with scores, (samples, heads, queries, keys)."""
    wanted = [slow(scores[:, h]) for h in range(scores.shape[1])]
    for h, numbers in enumerate(wanted):
        for what, number in zip(NAMES, numbers, strict=True):
            found = values[f"taut/{name}/head_{h:02d}/{what}"]
            assert found == pytest.approx(number, rel=1e-4, abs=1e-5), (h, what)
    top, entropy, mean, largest = map(np.array, zip(*wanted, strict=True))
    for what, number in {
        "largest_score": top.max(), "entropy": entropy.mean(),
        "lowest_entropy": entropy.min(), "local_constant": mean.mean(),
        "largest_constant": largest.max(),
    }.items():  # fmt: skip
        assert values[f"taut/{name}/{what}"] == pytest.approx(number, rel=1e-4, abs=1e-5)


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def test_values_of_gpt2_equal_a_slow_computation():
    model, ids = gpt2(), batches(1)[0]
    logged = []
    log = lambda values, step: logged.append((values, step))  # noqa: E731
    monitor = Monitor(model, weights=True, heads=True, log=log)
    model.train()
    loss_of(model, ids).backward()
    ((values, step),) = logged
    assert step == 0
    assert values == monitor.history[0].values
    assert monitor.history[0].missed == ()
    model.eval()
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
        for i, block in enumerate(model.transformer.h):
            q, k, _ = block.attn.c_attn(block.ln_1(states[i])).split(32, dim=2)
            scores = split(q, 4) @ split(k, 4).mT / math.sqrt(8)
            scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -math.inf)
            check(values, f"layer_{i:02d}", scores)
            weight = block.attn.c_attn.weight.double().numpy()
            for j, what in enumerate(("query", "key", "value")):
                norm = np.linalg.norm(weight[:, 32 * j : 32 * (j + 1)], 2)
                key = f"taut/layer_{i:02d}/sigma_max/{what}"
                assert values[key] == pytest.approx(norm, rel=1e-10)
            norm = np.linalg.norm(block.attn.c_proj.weight.double().numpy(), 2)
            key = f"taut/layer_{i:02d}/sigma_max/c_proj"
            assert values[key] == pytest.approx(norm, rel=1e-10)
    assert len(values) == 5 + 2 * (4 * 4 + 5 + 4)


def test_values_of_an_encoder_equal_a_slow_computation():
    model, x = encoder().double(), torch.randn(3, 5, 8, dtype=torch.float64)
    monitor = Monitor(model, weights=True)
    model(x).sum().backward()
    values = monitor.history[0].values
    model.eval()
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            attention = layer.self_attn
            qkv = x @ attention.in_proj_weight.T + attention.in_proj_bias
            q, k, _ = qkv.chunk(3, dim=-1)
            check(values, f"layer_{i:02d}", split(q, 2) @ split(k, 2).mT / 2)
            for what, block in zip(
                ("query", "key", "value"), attention.in_proj_weight.chunk(3), strict=True
            ):
                key = f"taut/layer_{i:02d}/sigma_max/{what}"
                assert values[key] == pytest.approx(np.linalg.norm(block.numpy(), 2), rel=1e-10)
            assert f"taut/layer_{i:02d}/sigma_max/out_proj" in values
            x = layer(x)


class Parted(nn.Module):
    """The softmax is a module of its own, and the weights are parametrised."""

    def __init__(self):
        super().__init__()
        self.to_q = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.to_k, self.attend = nn.Linear(8, 8), nn.Softmax(dim=-1)
        self.places = nn.Embedding(5, 5)

    def forward(self, x):
        scores = self.to_q(x) @ self.to_k(x).mT + self.places.weight
        return self.attend(scores) @ x


def test_projections_around_a_softmax_as_they_are_in_use():
    model = nn.Sequential(Parted(), nn.Linear(8, 8))
    values = Monitor(model, weights=True).measure(torch.randn(3, 5, 8))
    model.eval()
    sigma = {k: v for k, v in values.items() if "sigma_max" in k}
    for name in ("to_q", "to_k"):
        weight = getattr(model[0], name).weight.detach().double().numpy()
        found = sigma.pop(f"taut/layer_00/sigma_max/{name}")
        assert found == pytest.approx(np.linalg.norm(weight, 2), rel=1e-10)
    assert not sigma
    assert "taut/layer_00/head_00/entropy" in values


def test_a_layer_that_runs_twice_has_two_names():
    model, inputs = tiny("albert")
    monitor = Monitor(model)
    keys = {key.split("/")[1] for key in monitor.measure(**inputs) if key.count("/") > 1}
    assert keys == {"layer_00", "layer_01"}
    assert [name.endswith(" (2)") for name in monitor.layers] == [False, True]


def test_padding_does_not_count_and_heads_can_be_left_out():
    model, logged = gpt2(), []
    monitor = Monitor(model, log=lambda values, _: logged.append(values))
    ids = batches(1)[0]
    mask = torch.ones_like(ids)
    mask[:, 4:] = 0
    padded = monitor.measure(input_ids=ids, attention_mask=mask)
    plain = monitor.measure(input_ids=ids[:, :4])
    assert padded.keys() == plain.keys()
    for key, value in plain.items():
        assert padded[key] == pytest.approx(value, abs=1e-5)
    assert len(plain) == 5 + 2 * (4 * 4 + 5)
    assert set(logged[0]) == {key for key in plain if "/head_" not in key}


class Restless(nn.Module):
    """Everything a forward pass may do besides its result."""

    def __init__(self):
        super().__init__()
        self.encoder = encoder()
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.calls = 0
        self.register_buffer("total", torch.zeros(1))
        spectral = nn.utils.parametrizations.spectral_norm
        self.head = spectral(nn.Linear(8, 8))

    def forward(self, x):
        self.calls += 1
        self.total += x.sum()  # also in evaluation
        self.mean = x.mean()
        if not self.training:
            self.evaluated = True
        x.mul_(1.5)  # an input that is written into
        noise = torch.rand(1) + random.random() + np.random.rand()  # noqa: NPY002
        x = self.drop(self.encoder(x)) * noise * (1 + 0.1 * self.calls) + self.mean
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2)) + self.total


def gpt2_batches(count):
    return [{"input_ids": ids, "labels": ids} for ids in batches(count)]


def tensors(count):
    generator = torch.Generator().manual_seed(1)
    return [{"x": torch.randn(3, 5, 8, generator=generator)} for _ in range(count)]


CASES = {
    "gpt2": (gpt2, gpt2_batches, {}),
    "gpt2 bfloat16": (gpt2, gpt2_batches, {"dtype": torch.bfloat16}),
    "restless": (Restless, tensors, {}),
    "restless bfloat16": (Restless, tensors, {"dtype": torch.bfloat16}),
}


def train(make, data, monitored, dtype=None, accumulate=1, prepare=lambda model: model):
    """Losses and weights of a short training, and the monitor."""
    model = prepare(make())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    monitor = Monitor(model, every=2, warn=False, weights=True) if monitored else None
    torch.manual_seed(2)
    random.seed(2)
    np.random.seed(2)  # noqa: NPY002
    model.train()
    losses = []
    for i, batch in enumerate(data):
        # As the GPU does: the casts of weights are kept over the whole step.
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            output = model(**{key: value.clone() for key, value in batch.items()})
            loss = output.loss if hasattr(output, "loss") else output.square().mean()
        loss.backward()
        losses.append(loss.detach())
        if (i + 1) % accumulate == 0:
            optimiser.step()
            optimiser.zero_grad()
            if monitor:
                monitor.step()
    return torch.stack(losses), model.state_dict(), monitor, model


def same(one, other):
    assert torch.equal(one[0], other[0])
    assert one[1].keys() == other[1].keys()
    assert all(torch.equal(value, other[1][key]) for key, value in one[1].items())


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("name", CASES)
def test_training_is_the_same_bit_for_bit(name):
    make, data, options = CASES[name]
    # Virtual machines may announce instructions for bfloat16 that oneDNN cannot use.
    with torch.backends.mkldnn.flags(enabled=False) if options else nullcontext():
        with_monitor = train(make, data(10), True, **options)
        without = train(make, data(10), False, **options)
    same(with_monitor, without)
    assert [found.step for found in with_monitor[2].history] == [0, 2, 4, 6, 8]
    assert with_monitor[0].isfinite().all()
    assert len(set(with_monitor[0].tolist())) == 10  # it does train
    for mine, theirs in zip(with_monitor[3].modules(), without[3].modules(), strict=True):
        assert vars(mine).keys() == vars(theirs).keys()
        assert mine.training == theirs.training
    if isinstance(with_monitor[3], Restless):
        assert with_monitor[3].calls == 10


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_autocast_keeps_no_casts_of_the_additional_pass():
    """They have no gradients, and older versions of PyTorch would use them in what follows."""

    class Casts(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.count += function is torch.ops.aten._to_copy.default
            return function(*args, **kwargs or {})

    model, x, counted = encoder(), torch.randn(3, 5, 8), []
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            with Casts() as casts:
                model(x)
            counted.append(casts.count)
        monitor = Monitor(model)
        monitor.close()
        monitor.measure(x)
        with Casts() as casts:
            model(x)
    assert counted[1] < counted[0] == casts.count


def test_accumulated_gradients():
    with_monitor = train(gpt2, gpt2_batches(12), True, accumulate=3)
    same(with_monitor, train(gpt2, gpt2_batches(12), False, accumulate=3))
    assert [found.step for found in with_monitor[2].history] == [0, 2]


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant):
    def prepare(model):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        return model

    with_monitor = train(gpt2, gpt2_batches(4), True, prepare=prepare)
    same(with_monitor, train(gpt2, gpt2_batches(4), False, prepare=prepare))
    assert len(with_monitor[2].history) == 2


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = encoder()

    def forward(self, x):
        return self.encoder(x)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("how", ["wrapped", "in place", "parts"])
def test_compiled_models(how):
    """The plain backend: compiling to machine code would change nothing here but the time."""

    def prepare(model):
        torch.compiler.reset()
        if how == "wrapped":
            return torch.compile(model, backend="aot_eager")
        if how == "in place":
            model.compile(backend="aot_eager")
        else:
            layers = model.encoder.layers
            layers[1] = torch.compile(layers[1], backend="aot_eager")
        return model

    torch._dynamo.utils.counters.clear()
    without = train(Own, tensors(6), False, prepare=prepare)
    counted = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.utils.counters.clear()
    with_monitor = train(Own, tensors(6), True, prepare=prepare)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counted > 0
    same(with_monitor, without)
    assert [found.step for found in with_monitor[2].history] == [0, 2, 4]
    layers = set(with_monitor[2].layers)
    assert layers == {"encoder.layers.0.self_attn", "encoder.layers.1.self_attn"}


def test_a_call_inside_of_a_compiled_function_is_told():
    torch.compiler.reset()
    model = encoder()
    monitor = Monitor(model)
    step = torch.compile(lambda x: model(x).sum(), backend="aot_eager")
    step(torch.randn(3, 5, 8)).backward()
    with pytest.warns(AttentionWarning, match="no forward pass"):
        monitor.step()
    assert not monitor.history
    assert monitor.measure(torch.randn(3, 5, 8))


def test_a_model_inside_of_ddp(tmp_path):
    distributed, with_monitor = torch.distributed, None
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/x", rank=0, world_size=1)
    try:
        wrap = nn.parallel.DistributedDataParallel
        with_monitor = train(Own, tensors(4), True, prepare=wrap)
        same(with_monitor, train(Own, tensors(4), False, prepare=wrap))
        history = with_monitor[2].history
    finally:
        # A wrapped model that outlives its group takes the group's threads with it while Python's
        # lock is held, and may wait for them for ever.
        del with_monitor
        gc.collect()
        distributed.destroy_process_group()
    assert len(history) == 2
    assert "taut/layer_00/entropy" in history[0].values


def state_of(model):
    """All that must not change: of modules, of random numbers, of PyTorch."""
    modules = [
        {k: dict(v) if isinstance(v, dict) else v for k, v in vars(m).items()}
        for m in model.modules()
    ]
    switches = (torch.backends.mha.get_fastpath_enabled(), torch.is_grad_enabled(),
                torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled(),
                torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()),  # noqa: NPY002
                getattr(getattr(model, "config", None), "_attn_implementation", None))  # fmt: skip
    return modules, switches


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_an_exception_in_the_model(error):
    model, ids = gpt2(), batches(1)[0]
    model.train()
    model.transformer.h[0].eval()  # frozen parts stay frozen

    def fail(*_):
        raise error("on purpose")

    handle = model.transformer.h[1].mlp.register_forward_hook(fail)
    before = state_of(model)
    monitor = Monitor(model)
    assert len(model._forward_pre_hooks) == 1
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(error, match="on purpose"):
            loss_of(model, ids)
    kinds = [w.category for w in told]
    assert kinds == ([AttentionWarning] if error is RuntimeError else [])
    if error is KeyboardInterrupt:  # nothing was drawn
        assert repr(state_of(model)) == repr(before)
    assert repr(state_of(model)[0]) == repr(before[0])
    assert not monitor.history
    handle.remove()
    torch.set_rng_state(torch.tensor(before[1][4], dtype=torch.uint8))
    loss = loss_of(model, ids)
    torch.set_rng_state(torch.tensor(before[1][4], dtype=torch.uint8))
    assert torch.equal(loss_of(model, ids), loss)


def test_training_goes_on_when_measuring_fails():
    class Fragile(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder()

        def forward(self, x):
            if not torch.is_grad_enabled():
                raise MemoryError("too much")
            return self.encoder(x)

    model = Fragile()
    monitor = Monitor(model, every=1)
    with pytest.warns(AttentionWarning, match="too much"):
        model(torch.randn(3, 5, 8)).sum().backward()
    monitor.step()
    model(torch.randn(3, 5, 8))  # said once
    with pytest.raises(MemoryError):
        monitor.measure(torch.randn(3, 5, 8))


def test_nothing_is_installed_between_measurements():
    model, data = gpt2(), batches(6)
    monitor = Monitor(model, every=3)
    before = state_of(gpt2())
    for i, ids in enumerate(data):
        with torch.no_grad():
            loss_of(model, ids)  # an evaluation does not count
        assert len(monitor.history) == (i + 2) // 3
        loss_of(model, ids)
        assert len(monitor.history) == i // 3 + 1
        assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
        monitor.step()
        assert len(model._forward_pre_hooks) == ((i + 1) % 3 == 0)
    monitor.close()
    monitor.step(9)
    assert repr(state_of(model)[0]) == repr(before[0])


def test_copies_of_a_watched_model_are_plain():
    model, ids = gpt2(), batches(1)[0]
    monitor = Monitor(model, log=lambda *_: None)  # a lambda cannot be pickled
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        loss_of(twin, ids)
        assert not monitor.history
    loss_of(model, ids)
    assert len(monitor.history) == 1


def test_two_monitors_and_hooks_that_change_the_inputs():
    model, x = encoder(), torch.randn(3, 5, 8)
    model.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    first, second = Monitor(model), Monitor(model)
    model(x)
    assert first.history == second.history
    assert first.measure(x) == first.history[0].values
    assert len(second.history) == 1


def test_lazy_parameters_are_left_to_the_training():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.encoder = nn.LazyLinear(8), encoder()

        def forward(self, x):
            return self.encoder(self.linear(x))

    with_monitor = train(Lazy, tensors(4), True)
    same(with_monitor, train(Lazy, tensors(4), False))
    assert [found.step for found in with_monitor[2].history] == [1, 2]


def test_models_inside_of_models_are_switched_to_plain_attention():
    class Around(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids).logits

    model, ids = tiny("llama")[0], batches(1)[0]
    wanted = Monitor(model).measure(input_ids=ids)
    model.set_attn_implementation("flex_attention")  # whose scores are hidden
    monitor = Monitor(Around(model))
    values = monitor.measure(ids)
    assert model.config._attn_implementation == "flex_attention"
    assert monitor.history[0].missed == ()
    assert {k.replace("model.model", "model"): v for k, v in values.items()} == wanted


def scaled(model, factor):
    with torch.no_grad():
        for block in model.transformer.h[1:]:
            block.attn.c_attn.weight[:, :64] *= factor


def test_warnings_come_once_for_a_layer_and_kind():
    model, ids = gpt2(), batches(1)[0]
    monitor = Monitor(model)
    monitor.measure(input_ids=ids)
    scaled(model, 3)  # not yet
    monitor.measure(input_ids=ids)
    scaled(model, 100)
    with pytest.warns(AttentionWarning) as told:
        monitor.measure(input_ids=ids)
    texts = [str(w.message) for w in told]
    assert len(texts) == 2
    assert all(text.startswith("transformer.h.1.attn, step 0") for text in texts)
    assert "entropy collapses" in texts[0]
    assert "logits grow" in texts[1]
    assert "heads 0, 1, 2, 3" in texts[1]
    monitor.measure(input_ids=ids)  # not again; warnings are errors here
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.weight[0, :32] = math.nan
    with pytest.warns(AttentionWarning, match="NaN"):
        values = monitor.measure(input_ids=ids)
    assert math.isnan(values["taut/layer_01/largest_score"])
    assert math.isfinite(values["taut/layer_00/largest_score"])
    quiet = Monitor(model, warn=False)
    quiet.measure(input_ids=ids)


def layer(score, entropy, broken=0):
    values = np.array(score, dtype=float), np.array(entropy, dtype=float)
    return LayerMeasurement("a", *values, *values, broken, {})


@pytest.mark.parametrize(
    ("first", "now", "words"),
    [
        (layer([9, 9], [2, 2]), layer([9, 9], [0.25, 0.11]), ["all heads together"]),
        (layer([9, 9], [2, 2]), layer([9, 9], [0.3, 0.12]), []),
        (layer([9, 9], [2, 2]), layer([9, 9], [2, 0.0099]), ["(head 1)"]),
        (layer([9, 9], [2, 2]), layer([9, 9], [2, 0.011]), []),
        (layer([9, 9], [2, 0.005]), layer([9, 9], [2, 0.001]), []),
        (layer([9, -9], [2, 2]), layer([63, 65], [2, 2]), ["grow: up to 65, -9"]),
        (layer([20, 20], [2, 2]), layer([79, 81], [2, 2]), ["grow: up to 81, 20"]),
        (layer([9], [2]), layer([65, 65], [0.001, 2]), []),  # other heads: a new beginning
        (layer([9], [2]), layer([math.nan], [math.nan], 3), ["3 rows"]),
        (layer([9, 9], [2, 2]), layer([math.nan, 99], [math.nan, 0]), ["(head 1)", "(head 1)"]),
    ],
)
def test_when_to_warn(first, now, words):
    alarms = Alarms()
    assert alarms.check([first], 0) == []
    texts = alarms.check([now], 7)
    assert len(texts) == len(words)
    for text, word in zip(texts, words, strict=True):
        assert text.startswith("a, step 7: ")
        assert word in text
    assert alarms.check([now], 8) == []


def test_attention_that_was_sharp_from_the_beginning_is_no_alarm():
    model = gpt2()
    scaled(model, 100)
    monitor = Monitor(model)
    monitor.measure(input_ids=batches(1)[0])
    monitor.measure(input_ids=batches(1)[0])
    short = Monitor(model)
    short.measure(input_ids=batches(1)[0][:, :1])  # one key: its entropy is 0


def test_what_is_missed_is_told():
    class Fused(nn.Module):
        def forward(self, x):
            return torch.ops.aten._native_multi_head_attention(
                x, x, x, 8, 2, torch.eye(24, 8), torch.zeros(24), torch.eye(8), torch.zeros(8)
            )[0]

    with pytest.warns(AttentionWarning, match="native_multi_head_attention"):
        Monitor(Fused()).measure(torch.randn(1, 4, 8))
    with pytest.warns(AttentionWarning, match="no attention"):
        Monitor(nn.Linear(2, 2)).measure(torch.ones(1, 2))


class Spread(Constraint):
    def verify(self):
        return []

    def values(self):
        return {"spread": 0.25}


def test_constraints_and_history():
    model, ids = gpt2(), batches(1)[0]
    monitor = Monitor(model, constraints=[Spread(model)], keep=2)
    for step in (5, 6, 7):
        monitor.steps = step
        assert monitor.measure(input_ids=ids)["values/spread"] == 0.25
    assert [found.step for found in monitor.history] == [6, 7]
    with pytest.raises(ValueError, match="spread"):
        Monitor(model, constraints=[Spread(model), Spread(model)]).measure(input_ids=ids)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Monitor(3), TypeError, "Module"),
        (lambda: Monitor(nn.Linear(2, 2), every=0), ValueError, "every"),
        (lambda: Monitor(nn.Linear(2, 2), keep=0), ValueError, "keep"),
        (lambda: Monitor(nn.Linear(2, 2), every=1.5), TypeError, "every"),
    ],
)
def test_bad_input(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_importing_control_imports_no_trainer():
    code = (
        "import sys, taut.control; "
        "heavy = {'transformers', 'lightning', 'pytorch_lightning'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_packages_are_named(monkeypatch):
    from taut.control.callbacks import huggingface, lightning

    for module, made, words in (
        (huggingface, huggingface.HuggingFaceMonitor, "transformers"),
        (lightning, lightning.LightningMonitor, "pip install .*lightning"),
    ):
        monkeypatch.setattr(module, "_BASE", object)
        with pytest.raises(ImportError, match=words):
            made(None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*pin_memory:UserWarning")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_trainer_of_hugging_face_logs_the_values(tmp_path, accumulate):
    from taut.control import HuggingFaceMonitor

    def run(monitored):
        data = [{"input_ids": ids[0], "labels": ids[0]} for ids in batches(32)]
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=5, per_device_train_batch_size=2, use_cpu=True, report_to=[],
            gradient_accumulation_steps=accumulate, logging_steps=1, save_strategy="no",
            disable_tqdm=True, seed=3,
        )  # fmt: skip
        trainer = transformers.Trainer(gpt2(), arguments, train_dataset=data)
        callback = None
        if monitored:
            callback = HuggingFaceMonitor(trainer, every=2, heads=True)
            trainer.add_callback(callback)
        trainer.train()
        return trainer, callback

    trainer, callback = run(True)
    logs = trainer.state.log_history
    key = "taut/layer_01/head_03/largest_score"
    assert [entry["step"] for entry in logs if key in entry] == [0, 2, 4]
    assert [found.step for found in callback.monitor.history] == [0, 2, 4]
    assert logs[0][key] == callback.monitor.history[0].values[key]
    losses = [entry["loss"] for entry in logs if "loss" in entry]
    assert losses == [entry["loss"] for entry in run(False)[0].state.log_history if "loss" in entry]
    assert len(losses) == 5
    assert not trainer.model._forward_pre_hooks
    with pytest.raises(TypeError, match="Trainer"):
        HuggingFaceMonitor(transformers.Trainer)


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_goes_on_without_a_measurement_of_its_own(tmp_path):
    """From step 3 on, the next one is at 4: as in a training in one go."""
    from taut.control import HuggingFaceMonitor

    data = [{"input_ids": ids[0], "labels": ids[0]} for ids in batches(32)]
    for steps, expected in ((3, [0, 2]), (5, [4])):
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=steps, per_device_train_batch_size=2, use_cpu=True,
            report_to=[], save_steps=3, disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(gpt2(), arguments, train_dataset=data)
        callback = HuggingFaceMonitor(trainer, every=2, heads=True)
        trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=steps == 5)
        assert [found.step for found in callback.monitor.history] == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_logs_the_values(tmp_path, package):
    pl = pytest.importorskip(package, reason="Lightning is not installed")
    from taut.control import LightningMonitor

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.loss = encoder(), nn.Sequential(nn.Identity())

        def training_step(self, batch, _):
            value = self.loss(self.model(batch)).square().mean()
            self.losses = [*getattr(self, "losses", []), value.item()]
            return value

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    logged = []

    class Logger(pl.loggers.logger.DummyLogger):
        def log_metrics(self, metrics, step=None):
            logged.append((metrics, step))

    def run(callbacks, steps=5, checkpoint=None):
        trainer = pl.Trainer(
            max_steps=steps, accelerator="cpu", logger=Logger(), callbacks=callbacks,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            accumulate_grad_batches=2, default_root_dir=tmp_path,
        )  # fmt: skip
        torch.manual_seed(4)
        module = Module()
        torch.manual_seed(4)
        data = [batch["x"] for batch in tensors(20)]
        loader = torch.utils.data.DataLoader(data, batch_size=None)
        trainer.fit(module, loader, ckpt_path=checkpoint)
        trainer.save_checkpoint(tmp_path / f"{steps}.ckpt")
        return module.losses

    callback = LightningMonitor(every=2, heads=True)
    losses = run([callback])
    key = "taut/layer_01/head_00/entropy"
    assert [step for values, step in logged if key in values] == [0, 2, 4]
    assert [found.step for found in callback.monitor.history] == [0, 2, 4]
    assert losses == run([])
    run([], steps=3)
    callback = LightningMonitor(every=2)
    run([callback], checkpoint=tmp_path / "3.ckpt")
    assert [found.step for found in callback.monitor.history] == [4]
    with pytest.raises(ValueError, match="model, loss"):
        run([LightningMonitor("missing")])


def test_every_head_is_logged_on_request_and_names_are_stable():
    model, ids, logged = gpt2(), batches(1)[0], []
    monitor = Monitor(model, heads=True, log=lambda values, _: logged.append(values))
    values = monitor.measure(input_ids=ids)
    monitor.measure(input_ids=ids)
    assert set(logged[0]) == set(logged[1]) == set(values)
    assert list(monitor.layers.values()) == ["layer_00", "layer_01"]
    heads = [values[f"taut/layer_0{i}/head_0{h}/local_constant"] for i in (0, 1) for h in range(4)]
    assert values["taut/local_constant"] == pytest.approx(np.mean(heads))
