"""No record is taken for that of another run: whatever can change a number makes another one."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import audit  # noqa: E402
from taut.audit.auditor import fresh_record  # noqa: E402
from taut.audit.run_identity import runs_differ  # noqa: E402
from taut.models._identity.identity import identify  # noqa: E402
from taut.models._identity.source_files import is_own, source_files  # noqa: E402
from taut.models.samples import Samples  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402
from tests.helpers.audit_processes import options  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

nn = torch.nn
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran"]
TEXT = Samples("text", ["the cat sat", "the dog ran"], "")


def same(one, other):
    return identify(one) == identify(other)


def saved(place, kind="gpt2", **settings):
    """A model with large scores and a tokenizer, saved; the same weights whatever the settings."""
    model, _ = tiny(kind)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 3.0
    for key, value in settings.items():
        setattr(model.config, key, value)
    model.save_pretrained(place)
    (place / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    return place


def audited(place, tmp_path, samples=TEXT, **more):
    record = audit.run(place, samples, name="m", folder=tmp_path / "out", settings=options(**more))
    file = record.file
    return record, file


def ranges(record):
    return [row["range"] for row in record.heads]


def test_a_flag_of_the_configuration(tmp_path):
    """Equal weights under the same name: the scores of attention are not scaled any more."""
    place = saved(tmp_path / "m")
    first, one = audited(place, tmp_path)
    again, same_one = audited(place, tmp_path)
    assert (one, ranges(first)) == (same_one, ranges(again))
    file = place / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "scale_attn_weights": False}))
    other, two = audited(place, tmp_path)
    assert one != two
    assert max(ranges(other)) > 1.5 * max(ranges(first))
    found = runs_differ(first, other)
    assert "configuration.scale_attn_weights: true, false" in found
    assert first.model["weights"] == other.model["weights"]


def test_another_tokenizer_under_the_same_name(tmp_path):
    place = saved(tmp_path / "m")
    first, one = audited(place, tmp_path)
    words = [*WORDS[:5], *reversed(WORDS[5:])]
    (place / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    other, two = audited(place, tmp_path)
    assert one != two
    assert ranges(first) != ranges(other)
    assert runs_differ(first, other) == ["reader.content"]


def test_another_tokenizer_by_name(tmp_path):
    place = saved(tmp_path / "m")
    files = {audited(place, tmp_path, tokenizer=name)[1] for name in (None, str(place))}
    assert len(files) == 2


def test_other_preprocessing_of_images(tmp_path):
    pictures = pytest.importorskip("PIL.Image")
    place = tmp_path / "vit"
    tiny("vit")[0].save_pretrained(place)
    images = [pictures.new("RGB", (32, 32), (200, 10 * i, 0)) for i in range(2)]
    found = []
    for mean in (0.1, 0.1, 0.9):
        settings = {"image_mean": [mean] * 3, "image_std": [0.1] * 3}
        (place / "preprocessor_config.json").write_text(json.dumps(settings))
        found.append(audited(place, tmp_path, Samples("images", images, "")))
    assert found[0][1] == found[1][1] != found[2][1]
    assert ranges(found[0][0]) != ranges(found[2][0])
    assert "reader.mean: [0.1, 0.1, 0.1], [0.9, 0.9, 0.9]" in runs_differ(found[0][0], found[2][0])


OWN = """
import torch
from torch import nn
import scales
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.MultiheadAttention(8, 2, batch_first=True)
    def forward(self, x):
        x = x * scales.INPUT
        return self.block(x, x, x)[0]
def model():
    return Model()
"""


def test_code_of_ones_own(tmp_path):
    """A constant of a module that the model's file imports; the weights stay what they are."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(4, 5, 8)).astype("f4"))
    (tmp_path / "mine.py").write_text(OWN)
    found = []
    for scale in (1.0, 30.0):
        (tmp_path / "scales.py").write_text(f"INPUT = {scale}\n")
        done = taut("audit", "mine:model", "--data", "x.npy", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0]["layers"] != found[1]["layers"]
    assert len(list((tmp_path / "taut-audit").glob("*.json"))) == 2
    assert set(found[0]["identity"]["code"]) >= {"mine", "scales"}


class Scaled(nn.Module):
    """Everything that changes its numbers, and none of it a weight."""

    def __init__(self, scale=1.0, table=None, hidden=0.0, mode="sum"):
        super().__init__()
        self.scale, self.mode = scale, mode
        self.register_buffer("table", torch.zeros(3) if table is None else table, persistent=False)
        self.hidden = [nn.Linear(1, 1)]
        nn.init.constant_(self.hidden[0].weight, hidden)
        nn.init.constant_(self.hidden[0].bias, 0.0)
        self.weight = nn.Parameter(torch.ones(2))


def doubled(module, args, out):
    return 2 * out


@pytest.mark.parametrize(
    "other",
    [
        Scaled(scale=2.0),
        Scaled(table=torch.tensor([0.0, 0.0, 1e-9])),
        Scaled(hidden=0.5),
        Scaled(mode="mean"),
        Scaled().train(False),
        Scaled().half(),
    ],
    ids=["attribute", "buffer that is not saved", "module in a list", "word", "mode", "type"],
)
def test_what_is_not_a_weight(other):
    assert same(Scaled(), Scaled())
    assert not same(Scaled(), other)


def test_hooks_and_functions():
    one, two, three = Scaled(), Scaled(), Scaled()
    one.register_forward_hook(doubled)
    two.register_forward_hook(doubled)
    assert same(one, two)
    assert not same(one, three)
    for factor in (2.0, 3.0):
        model = Scaled()
        model.make = lambda x, factor=factor: factor * x
        one, three = three, model
    assert not same(one, three)
    one.make, three.make = lambda x: 2 * x, lambda x: 3 * x
    assert not same(one, three)


def test_names_and_places_do_not_count(tmp_path):
    """A model that was moved, and one that was written by another revision, are the same."""
    one, two = saved(tmp_path / "a"), saved(tmp_path / "b")
    file = two / "config.json"
    told = {**json.loads(file.read_text()), "transformers_version": "4.0.0"}
    file.write_text(json.dumps(told))
    models = [transformers.AutoModelForCausalLM.from_pretrained(place) for place in (one, two)]
    models[1].config._commit_hash = "abc"
    assert same(*models)
    eager = transformers.AutoModelForCausalLM.from_pretrained(one, attn_implementation="eager")
    assert not same(models[0], eager)


@pytest.mark.parametrize(
    "dtype", ["float64", "bfloat16", "complex64", "bool", "float8_e4m3fn", "uint4", "int16"]
)
def test_weights_of_every_type(dtype):
    kind = getattr(torch, dtype)

    def make(byte):
        model = nn.Module()
        content = torch.zeros(16, dtype=torch.uint8)
        content[-1] = byte
        model.register_buffer("weight", content.view(kind))
        return model

    assert identify(make(1))["unknown"] == []
    assert same(make(1), make(1))
    assert not same(make(1), make(0))


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_weights_of_every_layout():
    def make(value):
        model = nn.Module()
        model.register_buffer("sparse", torch.tensor([[0.0, value]]).to_sparse())
        model.register_buffer("rows", torch.tensor([[0.0, value]]).to_sparse_csr())
        model.register_buffer("turned", torch.tensor([[1.0, value]]).mT)
        return model

    assert identify(make(2.0))["unknown"] == []
    assert same(make(2.0), make(2.0))
    assert not same(make(2.0), make(3.0))


def test_shapes_and_tied_weights_count():
    one, two = nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        one.weight.zero_()
        two.weight.zero_()
    assert identify(one)["weights"] != identify(two)["weights"]
    tied, apart = (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(2))
    tied[1].weight = tied[0].weight
    apart.load_state_dict(tied.state_dict())
    assert identify(tied)["weights"] == identify(apart)["weights"]


class Lost(nn.Module):
    """A weight that is on no device."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_parameter("lost", nn.Parameter(torch.empty(3, device="meta")))

    def forward(self, x):
        return self.block(x, x, x)[0]


def test_what_cannot_be_identified_is_never_reused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("taut.audit.model_and_data.load", lambda *_, **__: Lost().eval())
    data = Samples("tensors", list(torch.randn(4, 5, 8)), "")
    first, one = audited("lost", tmp_path, data)
    assert first.model["weights"] is None
    assert first.identity["unknown"] == ["lost: its numbers are not in memory"]
    assert capsys.readouterr().err == ""
    again, two = audited("lost", tmp_path, data)
    assert one != two
    said = capsys.readouterr().err
    assert "cannot be identified (lost: its numbers are not in memory)" in said
    assert again.heads == first.heads


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a\nb", "c"], ["a", "b\nc"]),
        ([torch.zeros(2, 6)], [torch.zeros(3, 4)]),
        ([torch.zeros(4)], [torch.zeros(4, dtype=torch.int32)]),
    ],
    ids=["line breaks", "shape", "type"],
)
def test_data_of_the_same_bytes(one, other):
    kind = "text" if isinstance(one[0], str) else "tensors"
    mine, theirs = (Samples(kind, items, "").description for items in (one, other))
    assert mine["digest"] != theirs["digest"]


def test_pictures_of_the_same_bytes():
    pictures = pytest.importorskip("PIL.Image")
    mine, theirs = (
        Samples("images", [pictures.new("RGB", size)], "").description for size in ((2, 8), (4, 4))
    )
    assert mine["digest"] != theirs["digest"]


def test_a_name_that_is_taken(tmp_path, capsys):
    """A file of the right name with another run inside is left alone, and this is said."""
    place = saved(tmp_path / "m")
    first, one = audited(place, tmp_path)
    taken = audit.Record.load(one)
    taken.identity["configuration"]["n_head"] = 99
    taken.save(one)
    before = one.read_bytes()
    capsys.readouterr()
    other, two = audited(place, tmp_path)
    assert two.name == f"{one.stem}-2.json"
    assert "holds another run, which differs in configuration.n_head: 99, 4" in (
        capsys.readouterr().err
    )
    assert one.read_bytes() == before
    assert other.heads == first.heads
    assert audited(place, tmp_path)[1] == two


def test_an_edited_taut(tmp_path, monkeypatch):
    place = saved(tmp_path / "m")
    _, one = audited(place, tmp_path)
    for module in ("identity", "file_stamps"):
        name = f"taut.models._identity.{module}.taut_digest"
        monkeypatch.setattr(name, lambda code: "other")
    assert audited(place, tmp_path)[1] != one


def test_records_describe_their_run(tmp_path):
    model, inputs = tiny("gpt2")
    record = audit.run(model, [inputs])
    assert record.identity["configuration"]["n_head"] == 4
    assert record.identity["class"].endswith("GPT2LMHeadModel")
    assert record.identity["versions"]["torch"]
    json.dumps(record.to_dict(), allow_nan=False)
    fresh = fresh_record(model, "gpt2")
    fresh.settings = record.settings
    assert runs_differ(record, fresh) == ['name: "GPT2LMHeadModel", "gpt2"']


def test_versions_are_those_of_packages_that_are_not_imported_yet(tmp_path, monkeypatch):
    (tmp_path / "of_mine.py").write_text("def late():\n    import PIL, yaml, json\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "yaml", raising=False)
    found = source_files(["of_mine"], is_own)
    assert set(found.files) == {"of_mine"}
    assert found.versions["PIL"] == pytest.importorskip("PIL").__version__
    assert found.versions["yaml"] == pytest.importorskip("yaml").__version__
