"""`taut certify` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("typer")
from tests.helpers.architectures import small  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402


def run(*arguments, cwd=None):
    return taut("certify", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT classifier with a tokenizer, saved as people save theirs."""
    place = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    model = small("bert classifier")
    model.save_pretrained(place)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran"]
    (place / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    return place


def test_text(folder, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("the dog\n")
    done = run(folder, "--inputs", lines, "--inputs", "the cat ran", "--classify")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Norm of the derivative: ")
    for words in ("Lipschitz constant at most", "encoder", "certified radius"):
        assert words in done.stdout
    assert "the dog" in done.stdout


def test_json(folder):
    done = run(folder, "--inputs", "the cat", "--json", "--norm", "token", "--local", "probe")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["norm"] == "largest token l2"
    assert record["upper"][0] >= record["measured"][0] > 0
    assert record["local"]["lower"][0] <= record["local"]["upper"][0]
    assert record["modules"][0]["class"] == "BertForSequenceClassification"
    assert record["inputs"] == ["the cat"]
    assert record["vacuous"] == [record["upper"][0] > 1000 * record["measured"][0]]


def test_what_was_cut_is_said(folder):
    """A certificate of a cut input is one of another input."""
    asked = (
        folder,
        "--inputs",
        "the cat ran",
        "--inputs",
        "the",
        "--max-length",
        4,
        "--local",
        "no",
    )
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    assert "Note: 1 of 2 inputs were cut to 4 tokens (--max-length)." in done.stdout
    assert len(json.loads(run(*asked, "--json").stdout)["notes"]) == 1


def test_all_inputs_of_a_shape(folder):
    done = run(folder, "--shape", "4,16", "--radius", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert "length at most 2" in json.loads(done.stdout)["domain"]


def test_tensors_and_a_function_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\ndef net():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(3, 2))\n"
    )
    np.save(tmp_path / "x.npy", np.ones((2, 3), dtype=np.float32))
    command = [sys.executable, "-m", "taut", "certify", "mine:net", "--inputs", "x.npy", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)  # as users do
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["upper"]) == 2
    assert run("mine:net", "--inputs", "x.npy", "--json", cwd=tmp_path).stdout == done.stdout


def test_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    torch.manual_seed(0)
    small("vit classifier").save_pretrained(tmp_path / "vit")
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    image.fromarray(pixels).save(tmp_path / "a.png")
    done = run(tmp_path / "vit", "--inputs", tmp_path / "a.png", "--json", "--classify")
    assert done.returncode == 0, done.stderr
    norms = json.loads(done.stdout)["classes"]["norms"]
    for name in ("l1", "l2", "linf"):
        attack = norms[name]["attack"][0]
        assert 0 <= norms[name]["radius"][0] <= (float("inf") if attack is None else attack)


def test_encoder_decoder_models_read_text(tmp_path):
    torch.manual_seed(0)
    small("t5 base").save_pretrained(tmp_path)
    words = {"<pad>": 0, "</s>": 1, "<unk>": 2, "the": 3, "cat": 4}
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(tmp_path)
    done = run(tmp_path, "--inputs", "the cat", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["upper"][0] > 0


@pytest.fixture
def relu_network(tmp_path):
    """A ReLU network whose certified radius at (1, 1) is far below the true one."""
    (tmp_path / "mine.py").write_text(
        "import torch\ndef net():\n    torch.manual_seed(2)\n"
        "    sizes = (2, 12), (12, 12), (12, 2)\n"
        "    a, b, c = (torch.nn.Linear(*size) for size in sizes)\n"
        "    return torch.nn.Sequential(a, torch.nn.ReLU(), b, torch.nn.ReLU(), c).double()\n"
    )
    np.save(tmp_path / "x.npy", np.array([[1.0, 1.0]]))
    return tmp_path


def test_a_radius_is_decided_by_branches(relu_network):
    """Beyond the certified radius ReLUs are branched on, until time is up."""
    asked = ("mine:net", "--inputs", "x.npy", "--classify", "--json", "--local", "no")
    plain = json.loads(run(*asked, cwd=relu_network).stdout)["classes"]["norms"]["linf"]
    assert "verdicts" not in plain
    between = (plain["radius"][0] * 1.3, plain["radius"][0] * 0.9, plain["attack"][0] * 1.02)
    seen = []
    for radius in between:
        done = run(*asked, "--radius", radius, cwd=relu_network)
        norms = json.loads(done.stdout)["classes"]["norms"]
        (found,) = norms["linf"]["verdicts"]
        seen.append((found["verdict"], found["reason"]))
        if found["verdict"] == "refuted":
            assert norms["linf"]["attack"][0] <= radius
        if found["reason"] == "verify" and found["verdict"] == "proved":
            assert found["lower"] > 0
    assert seen == [("proved", "verify"), ("proved", "certified radius"), ("refuted", "verify")]


def test_a_radius_that_is_not_decided_in_time_is_open(relu_network):
    asked = ("mine:net", "--inputs", "x.npy", "--classify", "--local", "no", "--time-limit", 1e-6)
    done = run(*asked, "--radius", "1.4", cwd=relu_network)
    assert done.returncode == 0, done.stderr
    assert "within 1.4" in done.stdout
    assert "open" in done.stdout


def test_a_model_with_a_bound_has_a_table_of_certified_accuracy(tmp_path):
    """Radii from the bound for all inputs: on the screen, as JSON, and as a figure."""
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom taut.control import LipschitzTransformer\ndef net():\n"
        "    torch.manual_seed(0)\n"
        "    return LipschitzTransformer.of_images(3, image=(1, 4, 4), patch=2, width=8,\n"
        "        layers=1, heads=2, target=1.0, activation='maxmin', sharpness=0.05).double()\n"
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((6, 1, 4, 4)))
    asked = ("mine:net", "--inputs", "x.npy", "--classify", "--local", "no")
    found = json.loads(run(*asked, "--json", cwd=tmp_path).stdout)["classes"]
    assert list(found["norms"]) == ["l2"]
    radius = np.array(found["norms"]["l2"]["radius"])
    assert (radius > 0).all()
    assert (radius <= np.array(found["norms"]["l2"]["attack"])).all()
    for at, share in found["norms"]["l2"]["shares"]:
        assert share == (radius >= at).mean()
    labels = [*found["predicted"][:3], *[(c + 1) % 3 for c in found["predicted"][3:]]]
    (tmp_path / "labels.txt").write_text("\n".join(map(str, labels)))
    given = ("--labels", "labels.txt", "--plot", "accuracy.svg")
    done = run(*asked, *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Certified accuracy, in l2" in done.stdout
    assert "50.0%" in done.stdout
    assert "<svg" in (tmp_path / "accuracy.svg").read_text()
    (tmp_path / "labels.txt").write_text("1 2")
    done = run(*asked, *given, cwd=tmp_path)
    assert (done.returncode, "2 labels for 6 inputs" in done.stderr) == (2, True)


def test_a_classifier_of_text_with_a_bound_has_one_too(tmp_path):
    """The inputs are embeddings; distances are l2 over all tokens."""
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom taut.control import LipschitzTransformer\ndef net():\n"
        "    torch.manual_seed(0)\n"
        "    return LipschitzTransformer.of_text(9, outputs=3, tokens=4, width=8, layers=1,\n"
        "        heads=2, target=1.0, attention='l2', norm='centre').double()\n"
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(3, 4, 8)))
    (tmp_path / "labels.txt").write_text("0\n1\n2\n")
    asked = ("mine:net", "--inputs", "x.npy", "--classify", "--local", "no", "--json")
    done = run(*asked, "--labels", "labels.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["classes"]
    radius, attack = (np.array(found["norms"]["l2"][key]) for key in ("radius", "attack"))
    assert (radius > 0).all()
    assert (radius <= attack).all()
    right = np.array(found["predicted"]) == np.arange(3)
    for at, share in found["norms"]["l2"]["shares"]:
        assert share == (right & (radius >= at)).mean()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no/such-model", "--inputs", "hello"), "no model 'no/such-model'"),
        (("./no/such-model", "--inputs", "hello"), "there is no folder ./no/such-model"),
        (("no/such/model", "--inputs", "hello"), "there is no folder no/such/model"),
        (("nothing:here", "--inputs", "hello"), "cannot load nothing:here"),
        (("x:y",), "give either inputs or a shape"),
        (("x:y", "--inputs", "a", "--shape", "2,2"), "give either inputs or a shape"),
        (("x:y", "--shape", "2;2"), "comma-separated"),
        (("x:y", "--shape", "2,2", "--norm", "l1"), "l2 or token"),
        (("x:y", "--shape", "2,2", "--classify"), "classify needs"),
        (("x:y", "--inputs", "a", "--plot", "a.svg"), "--plot needs --classify"),
        (("x:y", "--inputs", "a", "--limit", "0"), "--limit"),
        (("x:y", "--inputs", "a", "--local", "maybe"), "local must be"),
        (("torch.nn:Identity", "--inputs", "missing.npy"), "no file"),
        (("torch.nn:Identity", "--inputs", ""), "--inputs is empty"),
        (("torch.nn:Identity", "--inputs", "some text"), "takes no text"),
        (("torch.nn:ModuleList", "--shape", "2,2"), "register"),
        (("torch.nn:Identity", "--shape", "2,2", "--dtype", "int8"), "dtype"),
    ],
)
def test_bad_input_is_said_in_one_line(arguments, words, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_quick_to_read():
    done = run("--help")
    assert done.returncode == 0
    for option in ("--inputs", "--radius", "--shape", "--norm", "--json", "--classify"):
        assert option in done.stdout


@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".npy"])
def test_broken_files_are_named(ending, tmp_path):
    (tmp_path / f"x{ending}").write_bytes(b"nothing of the kind")
    done = run("torch.nn:Identity", "--inputs", f"x{ending}", cwd=tmp_path)
    assert done.returncode == 2
    assert f"cannot read a tensor from x{ending}" in done.stderr


def test_folders_and_patterns_of_files(tmp_path):
    for index in range(3):
        np.save(tmp_path / f"x{index}.npy", np.ones((1, 3), dtype=np.float32))
    done = run("torch.nn:Identity", "--inputs", "x*.npy", "--json", cwd=tmp_path)
    assert len(json.loads(done.stdout)["upper"]) == 3
    done = run("torch.nn:Identity", "--inputs", "y*.npy", cwd=tmp_path)
    assert "there are no files" in done.stderr


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    torch.manual_seed(0)
    small("bert").save_pretrained(tmp_path)
    done = run(tmp_path, "--inputs", "the cat")
    assert done.returncode == 2
    assert "no tokenizer" in done.stderr


def test_encoder_decoder_models_need_both_shapes(tmp_path):
    small("t5 gated").save_pretrained(tmp_path)
    done = run(tmp_path, "--shape", "3,16")
    assert "needs context" in done.stderr
    done = run(tmp_path, "--shape", "3,16", "--context-shape", "4,16", "--json")
    assert json.loads(done.stdout)["upper"][0] > 0
