"""Consequences: the estimate is the second-order term, it can be merged, and records say it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut.audit.consequence import estimate, interventions  # noqa: E402
from taut.audit.consequence.head_consequence import HeadConsequence  # noqa: E402
from taut.audit.consequence.noise import KINDS, NOISE  # noqa: E402
from taut.audit.consequence.prediction import Prediction, divergence, drawn_score  # noqa: E402
from taut.models import attention_gradients, embedded_data, embedded_models  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402
from tests.helpers.toy_attention import token_ids, toy  # noqa: E402

PADDED = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def over_all_labels(model, ids):
    """What the estimate is the mean of, (kinds, layers, heads): labels by their probability."""
    with attention_gradients(model) as mode:
        output = model(ids)
    chances = output.detach().softmax(dim=-1)
    usual = mode.backward(output, torch.randn_like(chances))  # in which all keys count
    total = 0.0
    for token in range(ids.shape[1]):
        for label in range(output.shape[-1]):
            weights = torch.zeros_like(chances)
            weights[0, token] = -chances[0, token]
            weights[0, token, label] += 1
            found = [
                replace(each, key_power=full.key_power, value_power=full.value_power)
                for each, full in zip(mode.backward(output, weights), usual, strict=True)
            ]
            sizes = np.stack([estimate._kl(each, 1)[0] for each in found], axis=1)
            total = total + float(chances[0, token, label]) * sizes
    return total


def test_the_mean_over_labels_is_half_the_trace_of_the_hessian_of_the_divergence():
    ids = token_ids(1, 4)
    found = over_all_labels(toy(), ids)
    model = toy("written")
    clean = model(ids).detach()
    for kind, shape in (("scores", (4, 4)), ("keys", (4, 3)), ("values", (4, 3))):
        for number, layer in enumerate(model.layers):
            for head in range(4):

                def moved(leaf, layer=layer, head=head, kind=kind):
                    spread = torch.zeros(1, 4, *leaf.shape, dtype=torch.float64)
                    spread[0, head] = 1.0
                    layer.noise = {kind: spread * leaf}
                    one, other = clean.log_softmax(-1), model(ids).log_softmax(-1)
                    return (one.exp() * (one - other)).sum()

                start = torch.zeros(shape, dtype=torch.float64)
                hessian = torch.autograd.functional.hessian(moved, start)
                layer.noise = {}
                trace = float(hessian.reshape(start.numel(), -1).diagonal().sum())
                power = power_of(layer, kind, head, model, ids)
                wanted = 0.5 * NOISE[kind] ** 2 * power * trace
                at = found[KINDS.index(kind), number, head]
                assert at == pytest.approx(wanted, rel=1e-6)


def power_of(layer, kind, head, model, ids):
    """Mean squared coordinate of the keys or values of a head, from the weights of the model."""
    if kind == "scores":
        return 1.0
    kept = []
    hook = layer.register_forward_pre_hook(lambda _, args: kept.append(args[0].detach()))
    model(ids)
    hook.remove()
    mapped = (layer.key if kind == "keys" else layer.value)(kept[0])
    return float(layer.split(mapped, 2)[0, head // 2].detach().square().mean())


def test_draws_have_the_mean_and_the_covariance_of_labels():
    logits = torch.tensor([[[0.3, -1.0, 2.0, 0.0]]]).repeat(1, 4000, 1)
    found = Prediction(logits, torch.ones(1, 4000, dtype=torch.bool))
    score = drawn_score(found, 0, [5], 0)[0].double()
    chances = logits[0, 0].double().softmax(dim=-1)
    covariance = chances.diag() - chances[:, None] * chances
    assert score.mean(dim=0).abs().max() < 0.03
    assert (score.T @ score / 4000 - covariance).abs().max() < 0.03
    other = drawn_score(found, 0, [6], 0)[0]
    product = (score * other.double()).sum(dim=-1).mean()  # samples are drawn independently
    assert abs(product) < 0.05
    assert not torch.equal(drawn_score(found, 0, [5], 1)[0].double(), score)


def test_draws_depend_on_the_number_of_the_sample_alone():
    logits = torch.randn(2, 5, 7)
    whole = Prediction(logits, PADDED.bool())
    both = drawn_score(whole, 3, [8, 9], 0)
    for index in range(2):
        alone = Prediction(logits[index : index + 1], PADDED[index : index + 1].bool())
        torch.testing.assert_close(drawn_score(alone, 3, [8 + index], 0)[0], both[index])
    cut = Prediction(logits[1:, :3], torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(drawn_score(cut, 3, [9], 0)[0], both[1, :3])
    assert (both[1, 3:] == 0).all()


def test_the_divergence_of_near_predictions_keeps_its_digits():
    torch.manual_seed(0)
    before = torch.randn(3, 1000)
    after = before + 1e-4 * torch.randn(3, 1000)
    one, other = before.double().log_softmax(-1), after.double().log_softmax(-1)
    wanted = float((one.exp() * (one - other)).sum())
    assert wanted < 1e-7
    assert divergence(before, after) == pytest.approx(wanted, rel=1e-3)


def test_small_noise_does_what_the_estimate_says():
    model, ids = toy(), token_ids(1, 4)
    wanted = over_all_labels(model, ids)
    small = dict.fromkeys(KINDS, 1e-3)
    rows = audit.interventions(model, [ids.repeat(2000, 1)], noise=small, seed=0)
    for row, at in zip(rows, np.ndindex(2, 4), strict=True):
        assert (row["layer"], row["head"]) == (f"layers.{at[0]}", at[1])
        for number, kind in enumerate(KINDS):
            measured = row[f"kl_{kind}"] * 4 * (NOISE[kind] / 1e-3) ** 2
            assert measured == pytest.approx(wanted[number][at], rel=0.15)


def test_blocks_before_the_disturbed_one_need_not_run_again(monkeypatch):
    model, ids = toy(), token_ids()
    skipping = audit.interventions(model, [{"input_ids": ids}])
    ran = []
    model.layers[0].register_forward_hook(lambda *_: ran.append(0))
    audit.interventions(model, [{"input_ids": ids}], kinds=["scores"])
    assert len(ran) == 1 + 4 + 4  # a block that gives out what it did before does so through hooks
    assert "forward" not in vars(model.layers[0])
    monkeypatch.setattr(interventions, "_blocks", lambda model: [])
    assert audit.interventions(model, [{"input_ids": ids}]) == skipping


def audited(batches, model=None, **options):
    return audit.run(model or toy(), batches, epsilons=[], norms=[2], **options)


def test_any_division_of_the_samples_gives_the_same_record():
    ids = token_ids(6, 5)
    mask = torch.ones(6, 5, dtype=torch.int64)
    mask[1, 3:] = 0
    whole = audited([{"input_ids": ids, "attention_mask": mask}], consequence=4)
    parts = [{"input_ids": ids[i : i + 2], "attention_mask": mask[i : i + 2]} for i in (0, 2, 4)]
    one, other = (audit.Auditor(toy(), epsilons=[], norms=[2], consequence=4) for _ in range(2))
    other.add(parts[2], first=4)
    other.add(parts[0], first=0)
    one.add(parts[1], first=2)
    one.record.merge(other.record)
    for a, b in zip(whole.layers, one.record.layers, strict=True):
        assert (a.consequence.samples == 4).all()
        assert (b.consequence.samples == 4).all()
        for name, value in a.consequence.sums.items():
            np.testing.assert_allclose(b.consequence.sums[name], value, rtol=1e-9)
    assert whole.layers[0].consequence.sums["tokens"][0, 0] == 5 + 3 + 5 + 5
    assert [r["head"] for r in whole.ranked] == [r["head"] for r in one.record.ranked]


def test_padding_does_not_count():
    ids = token_ids(1, 5)
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    for causal in (True, False):
        padded = audited(
            [{"input_ids": ids, "attention_mask": mask}], toy(causal=causal), consequence=1
        )
        short = audited([{"input_ids": ids[:, :3]}], toy(causal=causal), consequence=1)
        for a, b in zip(padded.heads, short.heads, strict=True):
            for kind in KINDS:
                assert a[f"kl_{kind}"] == pytest.approx(b[f"kl_{kind}"], rel=1e-9)


def test_the_standard_error_is_that_of_a_ratio():
    rng = np.random.default_rng(0)
    kl, tokens = rng.random(9), rng.integers(3, 9, 9)
    state = HeadConsequence(1)
    for x, t in zip(kl, tokens, strict=True):
        state.add(np.array([[x], [math.nan], [math.inf]]), int(t))
    ratio = kl.sum() / tokens.sum()
    wanted = math.sqrt(9 / 8 * ((kl - ratio * tokens) ** 2).sum()) / tokens.sum()
    assert state.mean("scores")[0] == pytest.approx(ratio)
    assert state.error("scores")[0] == pytest.approx(wanted)
    assert np.isnan(state.mean("keys")).all()
    assert np.isnan(state.error("keys")).all()
    assert state.broken[:, 0].tolist() == [0, 0, 9]
    assert state.samples[:, 0].tolist() == [9, 0, 0]
    single = HeadConsequence(1)
    single.add(np.ones((3, 1)), 2)
    assert np.isnan(single.error("scores")).all()


def test_records_keep_it_label_it_and_rank_by_it(tmp_path):
    record = audited([token_ids(3, 5)], consequence=3, name="toy")
    plain = audited([token_ids(3, 5)], name="toy")
    assert "kl_scores" not in plain.columns
    assert plain.ranking == "by their mean constant in l2"
    assert "Among consequences" in audit.findings(record).looked_for
    assert "Among consequences" not in audit.findings(plain).looked_for
    assert {record.columns[f"kl_{kind}"].kind for kind in KINDS} == {"estimate"}
    assert "0.1" in record.columns["kl_scores"].meaning
    values = [row["kl_scores"] for row in record.ranked]
    assert values == sorted(values, reverse=True)
    assert [row["mean"] for row in record.ranked] != sorted(
        (row["mean"] for row in record.ranked), reverse=True
    )
    record.save(tmp_path / "a.json")
    again = audit.Record.load(tmp_path / "a.json")
    assert again.to_dict() == record.to_dict()
    assert again.heads == record.heads
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["columns"]["kl_keys"]["kind"] == "estimate"
    assert written["kinds"]["consequence"] == "estimate"
    assert written["layers"][0]["consequence"]["noise"] == NOISE
    audit.write_report(record, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "KL, scores (estimate)" in page
    assert "Consequence of noise on keys (estimate)" in page
    assert "by consequence" in page
    assert "estimate, not a bound" in page
    assert "(estimate)" in record._repr_html_()
    assert "(estimate)" in str(record)


@pytest.mark.parametrize("change", ["noise", "heads", "samples", "sums"])
def test_a_consequence_that_does_not_fit_is_refused(change):
    state = HeadConsequence(2)
    state.add(np.ones((3, 2)), 4)
    data = json.loads(json.dumps(state.to_dict()))
    assert HeadConsequence.from_dict(data, 2).to_dict() == state.to_dict()
    if change == "noise":
        data["noise"]["keys"] = 0.5
    elif change == "heads":
        data["heads"] = 3
    elif change == "samples":
        data["samples"][0][0] = -1
    else:
        data["sums"]["kl"][1][1] = -1.0
    with pytest.raises(ValueError, match="consequence"):
        HeadConsequence.from_dict(data, 2)
    with pytest.raises(ValueError, match="cannot merge"):
        state.merge(HeadConsequence(3))


def test_what_is_not_measured_is_null_and_says_why():
    record = audited([token_ids(2, 5)], toy("einsum"), consequence=2)
    data = json.loads(record.to_json())
    kept = data["layers"][0]["consequence"]
    assert kept["sums"]["kl"] == [[None] * 4] * 3
    assert "values" in kept["reason"]
    assert all(math.isnan(row["kl_scores"]) for row in record.heads)
    (found,) = [f for f in audit.findings(record) if f.kind == "consequence unknown"]
    assert "2 layers" in found.text
    assert kept["reason"] in found.text
    means = [row["mean"] for row in record.ranked]
    assert means == sorted(means, reverse=True)


def test_models_without_a_prediction_are_refused():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        vocab_size=11,
    )
    batch = {"input_ids": token_ids()}
    with pytest.raises(ValueError, match="no logits"):
        audited([batch], transformers.BertModel(config).eval(), consequence=1)
    with pytest.raises(ValueError, match="single output"):
        audited([batch], toy(classes=1), consequence=1)
    config.num_labels = 3
    for kind in ("BertForSequenceClassification", "BertForMaskedLM"):
        record = audited([batch], getattr(transformers, kind)(config).eval(), consequence=2)
        assert all(row["kl_scores"] > 0 for row in record.heads)
        tokens = 2 if kind.endswith("Classification") else 12
        assert record.layers[0].consequence.sums["tokens"][0, 0] == tokens


def test_the_model_is_left_as_it_was():
    model = toy().train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    audited([token_ids(2, 5)], model, consequence=2)
    assert model.training
    assert all(w.requires_grad and w.grad is None for w in model.parameters())
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="kinds must be among"):
        audit.interventions(model, [token_ids()], kinds=["queries"])
    with pytest.raises(ValueError, match="no fused attention"):
        audit.interventions(toy("written"), [token_ids()])


def test_findings_of_sharp_heads_and_of_heard_ones():
    record = audited([token_ids(3, 5)], consequence=3)
    for layer in record.layers:
        layer.consequence.sums["kl"][0] = [1.0, 1.0, 1.0, 1.0]
    means = {(r["layer"], r["head"]): r["mean"] for r in record.heads}
    order = sorted(means, key=means.get)
    layers = {layer.name: layer for layer in record.layers}
    assert not {"sharp but unheard", "blunt but heard"} & {f.kind for f in audit.findings(record)}
    for (name, head), kl in ((order[-1], 0.05), (order[0], 5.0)):
        layers[name].consequence.sums["kl"][0, head] = kl
    found = {f.kind: f for f in audit.findings(record)}
    sharp, blunt = order[-1], order[0]
    assert found["sharp but unheard"].heads == (f"{sharp[0]} head {sharp[1]}",)
    assert found["blunt but heard"].heads == (f"{blunt[0]} head {blunt[1]}",)


def test_bfloat16_models():
    wide = audited([token_ids(3, 5)], toy().float(), consequence=3)
    narrow = audited([token_ids(3, 5)], toy().bfloat16(), consequence=3)
    for a, b in zip(wide.heads, narrow.heads, strict=True):
        assert b["kl_values"] == pytest.approx(a["kl_values"], rel=0.5)


def test_an_embedded_model_is_ranked_like_its_interventions():
    from taut.models import Samples, batches, load

    place = str(embedded_models()["embedded-plain"])
    texts = embedded_data(48).items
    model = load(place, dtype="float32")
    record = audited(
        Samples("text", texts[:24], ""), model, consequence=24, max_length=48, tokenizer=place
    )
    made = batches(Samples("text", texts[24:36], ""), model, place, [0], size=12, max_length=48)
    measured = audit.interventions(model, [batch.inputs for batch in made])
    for kind in KINDS:
        pair = [[row[f"kl_{kind}"] for row in rows] for rows in (record.heads, measured)]
        one, other = (np.argsort(np.argsort(values)) for values in pair)
        assert np.corrcoef(one, other)[0, 1] > 0.7
        assert 0.6 < sum(pair[0]) / sum(pair[1]) < 1.7


def test_the_command_line(tmp_path):
    pytest.importorskip("typer")
    place = str(embedded_models()["embedded-plain"])
    words = ["--data", "To be, or not to be: that is the question.", "--dtype", "float32"]
    words += ["--epsilons", "", "--consequence", "--output-dir", str(tmp_path)]
    done = taut("audit", place, *words)
    assert done.returncode == 0, done.stderr
    assert "estimate, not a bound" in done.stdout
    assert "by consequence" in done.stdout
    (file,) = tmp_path.glob("*.json")
    record = audit.Record.load(file)
    assert record.settings["consequence"] == 16
    assert all(row["kl_scores"] > 0 for row in record.heads)


def test_shards_give_the_sums_of_one_run():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    data = [torch.randn(2, 9, 16) for _ in range(8)]
    known = {"consequence": 16, "epsilons": ()}
    shards = [audit.run(layer, data, shard=(number, 3), **known) for number in (1, 2, 3)]
    merged = audit.merge(shards).to_dict()
    assert merged["layers"] == audit.run(layer, data, **known).to_dict()["layers"]
    again = audit.merge(shards[::-1]).to_dict()
    assert again["layers"] == merged["layers"]
    read = HeadConsequence.from_dict(merged["layers"][0]["consequence"], 4)
    assert read.to_dict() == merged["layers"][0]["consequence"]
