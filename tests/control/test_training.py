"""Constraints where people train: steps, checkpoints, autocast, compiled models, processes."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import control  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402
from tests.helpers.places import TESTS  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def no_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def gradients(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def close(a, b, tolerance=1e-6):
    assert set(a) == set(b)
    for name in a:
        assert torch.allclose(a[name], b[name], rtol=1e-4, atol=tolerance), name


def constraints(model):
    return {
        "VAR-III": control.Orthogonality(model, "VAR-III", strength=1e-2).start(),
        "estimate": control.Orthogonality(model, "AM", strength=1e-2, probes=2).start(),
        "local": control.LocalConstant(model, limit=0.05).start(),
    }


@pytest.mark.parametrize("kind", ["VAR-III", "estimate", "local"])
def test_gradient_checkpoints_change_nothing(kind):
    model, inputs = tiny("gpt2")
    no_dropout(model).train()
    other = copy.deepcopy(model)
    other.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    found = []
    for each in (model, other):
        constraint = constraints(each)[kind]
        loss = each(**inputs, labels=inputs["input_ids"]).loss + constraint.penalty()
        loss.backward()
        found.append((loss.item(), gradients(each)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    close(found[0][1], found[1][1])


def test_reentrant_checkpoints_say_what_to_do():
    model, inputs = tiny("gpt2")
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    constraint = control.Orthogonality(model, "AM", strength=1.0).start()
    model(**inputs)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        constraint.penalty()


@pytest.mark.parametrize("kind", ["VAR-III", "local"])
def test_accumulated_passes_add_up(kind):
    model, inputs = tiny("bert")
    no_dropout(model).train()
    constraint = constraints(model)[kind]
    total = 0.0
    for part in range(2):
        one = {k: v[part : part + 1] for k, v in inputs.items()}
        model(**one)
        loss = constraint.penalty() / 2
        loss.backward()
        total += loss.item()
    halves = gradients(model)
    model.zero_grad()
    if kind == "VAR-III":  # rows are drawn anew for each pass in the other
        model(**inputs)
        loss = constraint.penalty()
        loss.backward()
        assert loss.item() == pytest.approx(total, rel=1e-5)
        close(halves, gradients(model))


def test_autocast():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    constraint = control.Orthogonality(model, "VAR-III", strength=1.0).start()
    x = torch.randn(2, 5, 8)
    model(x)
    exact = constraint.values()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)
        rough = constraint.values()
        constraint.penalty().backward()
    assert rough["LA"] == pytest.approx(exact["LA"], rel=1e-5)  # weights are not rounded
    assert rough["AM"] == pytest.approx(exact["AM"], rel=0.05)


def test_a_compiled_model():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    constraint = control.Orthogonality(model, "VAR-III", strength=1.0).start()
    model(x)
    expected = constraint.values()
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    loss = constraint.penalty()
    loss.backward()
    assert constraint.values() == {k: pytest.approx(v, rel=1e-5) for k, v in expected.items()}


def test_everything_is_left_as_found():
    model, inputs = tiny("gpt2")
    model.train()
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    state = torch.get_rng_state()
    made = [
        *constraints(model).values(),
        control.QKClip(model).start(),
        control.Projection(model, limit=2.0).start(),
    ]
    assert torch.equal(torch.get_rng_state(), state)
    original = model.transformer.h[1].attn.c_proj.forward
    model.transformer.h[1].attn.c_proj.forward = None
    with pytest.raises(TypeError):
        model(**inputs)
    model.transformer.h[1].attn.c_proj.forward = original
    torch.manual_seed(3)
    watched = model(**inputs).logits
    after = torch.get_rng_state()
    for constraint in made:
        assert constraint.bake() is model
    assert [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()] == hooks
    assert not any("forward" in vars(m) for m in model.modules() if type(m).__name__ != "Conv1D")
    torch.manual_seed(3)
    assert torch.equal(model(**inputs).logits, watched)
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.overrides._get_current_function_mode_stack()
    assert model.training


def test_copies_are_not_watched(tmp_path):
    model, inputs = tiny("gpt2")
    constraint = control.Orthogonality(model.train(), "AM", strength=1.0).start()
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    constraint._terms.clear()
    assert not copied(**inputs).logits.any()  # its own weights, not those of the first
    assert not constraint._terms
    torch.save(model.transformer.h[0].attn, tmp_path / "attention.pt")
    loaded = torch.load(tmp_path / "attention.pt", weights_only=False)
    assert torch.equal(loaded.c_attn.weight, model.transformer.h[0].attn.c_attn.weight)
    model.save_pretrained(tmp_path / "model")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    assert all(map(torch.equal, again.state_dict().values(), model.state_dict().values()))


def test_evaluation_costs_nothing():
    model, inputs = tiny("gpt2")
    constraint = control.Orthogonality(model.train(), "AM", strength=1.0).start()
    model(**inputs)
    assert constraint.values()["AM"] > 0
    seen, before = constraint.values(), constraint.state_dict()
    with torch.no_grad():
        model(input_ids=inputs["input_ids"][:, :3])
    assert (constraint.values(), constraint.state_dict()) == (seen, before)
    model.eval()  # as models come from a file, and are trained on
    model(**inputs)
    assert constraint.values()["AM"] > 0


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_a_cap_holds_after_every_step(name, per_head):
    model, inputs = tiny(name)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    projection = control.Projection(model, limit=0.15, per_head=per_head).start(optimizer)
    for _ in range(5):
        model(**inputs)[0].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        found = projection.verify()
        assert all(row.holds for row in found)
        assert max(row.largest for row in found) > 0.149  # it was needed
    parameters = dict(model.named_parameters())
    for row in found if not per_head else ():
        matrix = parameters[row.name.split("[")[0]].detach().double()
        if "[" not in row.name:
            assert row.largest == pytest.approx(float(torch.linalg.svdvals(matrix)[0]), rel=1e-9)


def test_projections_are_the_nearest():
    from taut.control.constraints.nearest_matrix import nearest_orthogonal, nearest_within

    torch.manual_seed(0)
    for shape in ((6, 6), (9, 4), (4, 9)):
        w = torch.randn(shape)
        near = nearest_orthogonal(w)
        small = near if shape[0] >= shape[1] else near.mT
        assert torch.allclose(small.mT @ small, torch.eye(min(shape)), atol=1e-5)
        cut = nearest_within(w, 1.0)
        assert torch.linalg.svdvals(cut.double())[0] <= 1.0
        for _ in range(20):  # no other matrix within the limit is nearer
            other = torch.randn(shape)
            other = other / torch.linalg.matrix_norm(other, 2)
            mixed = 0.9 * cut + 0.1 * other
            assert (w - cut).norm() <= (w - mixed).norm() + 1e-5
        assert nearest_within(0.1 * near, 1.0) is not None
        for size in (1e-25, 1e25):  # products of such numbers leave the range
            assert torch.linalg.svdvals(nearest_within(100 * size * w, size).double())[0] <= size
        tiny_one = 0.1 * near
        assert nearest_within(tiny_one, 1.0) is tiny_one


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "marian"])
def test_large_scores_are_clipped_head_by_head(name):
    model, inputs = tiny(name)
    no_dropout(model).train()
    blocks = [b for b in control.find_blocks(model) if b.kind == "attention"]
    rows = blocks[0].weights["query"]
    factors = torch.ones(rows.matrix().shape[0])
    factors[: len(factors) // 4] = 300.0  # the first of four heads
    rows.scale_rows(factors)
    clip = control.QKClip(model, limit=0.5).start()
    model(**inputs)
    before = {(r.name, r.head): r for r in clip.verify()}
    assert not before[blocks[0].path, 0].holds
    untouched = {n: p.clone() for n, p in model.named_parameters()}
    clip.after_step()
    model(**inputs)
    after = {(r.name, r.head): r for r in clip.verify()}
    first = {key: r for key, r in after.items() if key[0] == blocks[0].path}
    assert all(r.holds for r in first.values())
    assert after[blocks[0].path, 0].largest == pytest.approx(0.5, rel=1e-3)
    assert after[blocks[0].path, 1].largest == pytest.approx(
        before[blocks[0].path, 1].largest, rel=1e-4
    )
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, untouched[n])}
    assert changed
    clip.bake()


def test_negative_scores_are_left_alone():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight[:4] = -100 * torch.eye(4)
        layer.in_proj_weight[4:8] = 100 * torch.eye(4)
    clip = control.QKClip(layer, limit=1.0).start()
    x = torch.ones(1, 3, 4)
    layer(x, x, x, need_weights=False)
    (row,) = clip.verify()
    assert row.largest < -1e4
    assert row.holds
    before = layer.in_proj_weight.clone()
    clip.after_step()
    assert torch.equal(layer.in_proj_weight, before)


def test_what_cannot_be_clipped_says_so():
    with pytest.raises(ValueError, match="normalises queries and keys"):
        control.QKClip(tiny("qwen3")[0])
    with pytest.raises(ValueError, match="query and key maps of its own"):
        control.QKClip(tiny("falcon")[0])
    with pytest.raises(ValueError, match="limit"):
        control.QKClip(nn.MultiheadAttention(4, 1), limit=0.0)
    with pytest.raises(TypeError, match="half precision"):
        control.Projection(nn.MultiheadAttention(4, 1).bfloat16(), limit=1.0)
    broken = nn.MultiheadAttention(4, 1)
    with torch.no_grad():
        broken.in_proj_weight[0, 0] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        control.Projection(broken, limit=1.0).start()
    with pytest.raises(ValueError, match="roles"):
        control.Projection(broken, limit=1.0, roles=["querry"])
    with pytest.raises(ValueError, match="limit"):
        control.Projection(broken, limit=-1.0)
    with pytest.raises(ValueError, match="limit"):
        control.LocalConstant(broken, limit=0.7)


def test_sharp_rows_become_less_sharp():
    """The penalty on exact constants does what it says, and its value is that of the rows."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).train()
    with torch.no_grad():
        layer.in_proj_weight *= 2
    x = torch.randn(4, 2, 8)  # of two keys constants are up to ½
    local = control.LocalConstant(layer, limit=0.2, rows=2).start()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    layer(x, x, x, need_weights=False)
    scores = layer(x, x, x, average_attn_weights=False)[1].detach().log()
    import taut

    exact = taut.local_lipschitz(scores).value
    assert local.verify()[0].largest == pytest.approx(float(exact.max()), rel=1e-4)
    assert local.penalty().item() == pytest.approx(
        float((exact - 0.2).clamp(min=0).square().mean()), rel=1e-3
    )
    first = local.penalty().item()
    for _ in range(60):
        layer(x, x, x, need_weights=False)
        loss = local.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2 * first


def test_two_processes(tmp_path):
    """DDP and FSDP2: penalties and gradients equal those of one process."""
    script = TESTS / "helpers" / "control_processes.py"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script)],
        capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "equal" in done.stdout


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "marian"])
def test_sigma_reparametrisation(name, tmp_path):
    model, inputs = tiny(name)
    no_dropout(model).train()
    before = model(**inputs)[0].detach()
    keys = list(model.state_dict())
    # One step of power iteration follows large steps of the weights only so far.
    sigma = control.SigmaReparametrisation(model, tolerance=0.25).start()
    assert torch.allclose(model(**inputs)[0], before, atol=1e-5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(20):
        model(**inputs)[0].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    for row in sigma.verify():
        assert row.holds
        assert row.largest >= sigma.gains()[row.name] * (1 - 1e-5)  # power iteration is below
    model.eval()
    trained = model(**inputs)[0].detach()
    sigma.bake()
    assert sorted(model.state_dict()) == sorted(keys)
    assert torch.allclose(model(**inputs)[0], trained, atol=1e-6)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    assert torch.equal(again(**inputs)[0], model(**inputs)[0])


def trained(folder, model, constraints, accumulate=1, **more):
    """A short run of the Trainer on random text, the same for all."""
    torch.manual_seed(0)
    ids = torch.randint(0, 60, (16, 7))
    data = [{"input_ids": row, "labels": row} for row in ids]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=4, per_device_train_batch_size=8 // accumulate, use_cpu=True,
        gradient_accumulation_steps=accumulate, learning_rate=1e-2, report_to=[],
        save_strategy="no", logging_steps=1, disable_tqdm=True, seed=0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0, optim="sgd", **more,
    )  # fmt: skip
    from taut.control import HuggingFaceConstraints

    trainer = transformers.Trainer(model, arguments, train_dataset=data)
    if constraints:
        trainer.add_callback(HuggingFaceConstraints(trainer, *constraints))
    trainer.train()
    assert "compute_loss" not in vars(trainer)
    return {n: p.detach().clone() for n, p in model.named_parameters()}


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_keeps_constraints(tmp_path):
    """Against the same penalty in a loop by hand; and projections hold after the last step."""
    from taut.control import HuggingFaceConstraints

    def fresh():
        return no_dropout(tiny("gpt2")[0])

    model = fresh()
    constraint = control.Orthogonality(model, "VAR-III", strength=1e-2)
    found = trained(tmp_path, model, [constraint])
    plain = trained(tmp_path, fresh(), [])
    assert any(not torch.equal(found[n], plain[n]) for n in found)
    other = fresh()
    halves = control.Orthogonality(other, "VAR-III", strength=1e-2)
    twice = trained(tmp_path, other, [halves], accumulate=2)
    for n in found:  # the same step from two passes
        assert torch.allclose(found[n], twice[n], rtol=1e-3, atol=1e-5), n
    limited = fresh()
    cap = control.Projection(limited, limit=0.1)
    trained(tmp_path, limited, [cap])
    assert all(row.holds for row in cap.verify())
    assert not any(m._forward_hooks for m in constraint.bake().modules())
    smooth = fresh()
    pulled = control.Orthogonality(smooth, "VAR-III", strength=1e-2)
    trained(tmp_path, smooth, [pulled], label_smoothing_factor=0.1)  # the trainer's own loss
    assert pulled.values()["LF"] < control.Orthogonality(fresh(), "LF").values()["LF"] - 1e-4
    with pytest.raises(ValueError, match="another model"):
        trained(tmp_path, fresh(), [control.Orthogonality(fresh(), "LF")])
    with pytest.raises(TypeError, match="Trainer"):
        HuggingFaceConstraints(constraint)


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_keeps_every_constraint(tmp_path):
    """Also those that are a part of the model, or change it after a step."""
    model = no_dropout(tiny("gpt2")[0])
    soft, clip = control.SoftCap(model, limit=0.01), control.QKClip(model, limit=1e-3)
    before = [maps.weights[0].matrix().clone() for maps in clip._maps.values()]
    trained(tmp_path, model, [soft, clip])
    assert not any(made.running for made in (soft, clip))
    assert all(row.holds for row in soft.verify())  # it stays, as the model was trained with it
    after = [maps.weights[0].matrix() for maps in clip._maps.values()]
    assert all(x.norm() < 0.5 * y.norm() for x, y in zip(after, before, strict=True))
    late, early = (no_dropout(tiny("gpt2")[0]) for _ in range(2))
    with pytest.raises(ValueError, match="does not hold the gains"):
        trained(tmp_path, late, [control.SigmaReparametrisation(late)])
    sigma = control.SigmaReparametrisation(early, tolerance=0.5).start()
    gains = sigma.gains()
    trained(tmp_path, early, [sigma])
    assert sigma.running  # as it was before
    assert sigma.gains() != gains
    assert all(row.holds for row in sigma.verify())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["probes", "rows"])
def test_a_training_that_goes_on_is_the_same(kind, tmp_path):
    """Four steps, and two of them again from a checkpoint: what is drawn is the same too."""
    from taut.control import HuggingFaceConstraints

    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 60, (16, 7))]

    def run(checkpoint=None):
        model = no_dropout(tiny("gpt2")[0])
        if kind == "probes":
            constraint = control.Orthogonality(model, "VAR-III", strength=1e-2, probes=2)
        else:
            constraint = control.LocalConstant(model, limit=0.01, strength=10.0, rows=2)
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=4, per_device_train_batch_size=4, use_cpu=True, save_steps=2,
            gradient_accumulation_steps=2, report_to=[], logging_steps=1, disable_tqdm=True,
            learning_rate=1e-2, eval_strategy="steps", eval_steps=1,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model, arguments, train_dataset=data, eval_dataset=data[:4],
        )  # fmt: skip
        trainer.add_callback(HuggingFaceConstraints(trainer, constraint))
        trainer.train(resume_from_checkpoint=checkpoint)
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    whole = run()
    again = run(str(tmp_path / "checkpoint-2"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_the_state_of_a_penalty_decides_its_draws():
    model, inputs = tiny("gpt2")
    no_dropout(model).train()
    constraint = control.Orthogonality(model, "AM", probes=1).start()

    def values(count):
        found = []
        for _ in range(count):
            model(**inputs)
            found.append(constraint.values()["AM"])
        return found

    first = values(2)
    state = constraint.state_dict()
    then = values(2)
    assert len({*first, *then}) == 4
    constraint.load_state_dict(state)
    assert values(2) == then


def lightning_module(lightning, returned):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = no_dropout(tiny("gpt2")[0])

        def training_step(self, batch, _):
            return returned(self.model(input_ids=batch, labels=batch).loss)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_keeps_constraints(package, tmp_path):
    """Against the same steps in a loop by hand; and a cap holds after the last one."""
    lightning = pytest.importorskip(package)
    from taut.control import LightningConstraints

    torch.manual_seed(3)
    batches = list(torch.randint(0, 60, (6, 2, 7)))

    def run(module, callback, accumulate=2):
        trainer = lightning.Trainer(
            max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
            callbacks=[callback], accumulate_grad_batches=accumulate,
        )  # fmt: skip
        trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
        return module.model

    for returned in (lambda loss: loss, lambda loss: {"loss": loss, "other": 1}):
        module = lightning_module(lightning, returned)
        constraint = control.Orthogonality(module.model, "VAR-III", strength=1e-2)
        cap = control.Projection(module.model, limit=0.5)
        callback = LightningConstraints(constraint, cap)
        found = run(module, callback)
        assert all(row.holds for row in cap.verify())
        assert not any(made.running for made in (cap, constraint))
        assert "training_step" not in vars(module)
        assert callback.state_dict() == {"0": {"passes": 6}}
        callback.load_state_dict({"0": {"passes": 2}})
        assert constraint.state_dict() == {"passes": 2}
        byhand = no_dropout(tiny("gpt2")[0]).train()
        same = control.Orthogonality(byhand, "VAR-III", strength=1e-2).start()
        optimizer = torch.optim.SGD(byhand.parameters(), lr=0.1)
        control.Projection(byhand, limit=0.5).start(optimizer)
        for i, ids in enumerate(batches):
            ((byhand(input_ids=ids, labels=ids).loss + same.penalty()) / 2).backward()
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
        for (name, x), y in zip(found.named_parameters(), byhand.parameters(), strict=True):
            assert torch.allclose(x, y, rtol=1e-4, atol=1e-6), name
    manual = lightning_module(lightning, lambda loss: loss)
    manual.automatic_optimization = False
    with pytest.raises(ValueError, match="manual optimisation"):
        run(
            manual,
            LightningConstraints(control.Orthogonality(manual.model, "AM")),
            accumulate=1,
        )
    with pytest.raises(TypeError, match="give constraints"):
        LightningConstraints()
