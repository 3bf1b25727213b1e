"""Data and models from files that are broken, hostile, packed, or not what their names say."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import resource
import struct
import wave
import zipfile
import zlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut.models.samples import read_samples  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402
from tests.helpers.command_line import taut as command  # noqa: E402

GIGABYTE = 1 << 30


@pytest.fixture(autouse=True)
def little_memory():
    """A file that makes us ask for many gigabytes fails here."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as stream:
        now = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * GIGABYTE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


class Harm:
    def __reduce__(self):
        return os.system, ("touch harmed",)


def npy(shape, dtype="<f4"):
    """The header of an array, and a few bytes of it."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"shape": shape, "fortran_order": False, "descr": dtype}
    )
    return stream.getvalue() + bytes(64)


def saved(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def bomb():
    """An archive of torch whose numbers are zeros, packed a thousandfold."""
    small, large = io.BytesIO(saved(torch.zeros(4, 4))), io.BytesIO()
    with zipfile.ZipFile(small) as old, zipfile.ZipFile(large, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            data = bytes(64 << 20) if part.filename.endswith("data/0") else old.read(part)
            new.writestr(part.filename, data)
    return large.getvalue()


def objects():
    stream = io.BytesIO()
    np.save(stream, np.array([[{}, []]], dtype=object), allow_pickle=True)
    return stream.getvalue()


TENSORS = {
    "a.pt": [b"", b"no", saved(torch.ones(3, 4))[:-40], saved(torch.ones(3)), saved([1, 2]),
             saved({"a": torch.ones(2, 2), "b": torch.ones(2, 2)}), saved(Harm()),
             pickle.dumps(Harm()), pickle.dumps([1]), bomb(), saved("text"),
             saved(torch.eye(3).to_sparse()), saved(torch.ones(2, 2) * 1j),
             saved(torch.ones(1).expand(100_000, 100_000))],
    "a.npy": [b"", b"no", objects(), npy((1 << 40, 4)), npy((-1, 4)), npy((4, 4))[:-10], npy((3,)),
              npy((2, 2), "<U4"), npy((2, 2), "<c8"), pickle.dumps(Harm()),
              b"\x93NUMPY\x01\x00\xff"],
    "a.safetensors": [b"", b"no", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"{}",
                      struct.pack("<Q", 60)
                      + b'{"a":{"dtype":"F32","shape":[9,9],"data_offsets":[0,9]}}  '],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, i) for name, contents in TENSORS.items() for i in range(len(contents))],
)
def test_tensors_that_are_none(name, index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(TENSORS[name][index])
    with pytest.raises(ValueError, match=r"a\.") as caught:
        read_samples([name], 8)
    assert not (tmp_path / "harmed").exists()
    assert "weights_only" not in str(caught.value)  # nobody is told to run what is in there
    assert "\n" not in str(caught.value)


def test_tensors_of_odd_kinds_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(6, dtype=">f4").reshape(2, 3))
    assert read_samples(["a.npy"], 8).items[1].tolist() == [3.0, 4.0, 5.0]
    torch.save(torch.nn.Parameter(torch.ones(2, 3)), "A.PT")
    assert not read_samples(["A.PT"], 8).items[0].requires_grad
    torch.save({"x": torch.ones(1, 3).expand(4, 3)}, "b.pt")
    assert len(read_samples(["b.pt"], 3).items) == 3
    (tmp_path / "c.npy").mkdir()
    with pytest.raises(ValueError, match=r"c\.npy"):
        read_samples(["c.npy"], 8)


def png(width, height, depth=8, colour=2):
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))  # fmt: skip

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b""))  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [b"", b"no", png(100_000, 100_000), png(12_000, 12_000), png(30, 30)[:40], png(30, 30)[:-30],
     b"\xff\xd8\xff\xe0" + bytes(50), b"BM" + bytes(100),
     b"RIFF\x10\x00\x00\x00WEBPVP8 " + bytes(9),
     png(30, 30).replace(b"IDAT", b"XDAT"), png(0, 0)],
    ids=range(11),
)  # fmt: skip
def test_images_that_are_none(content, tmp_path):
    pytest.importorskip("PIL")
    from taut.models._data_files.images import oddities, pixels

    model, _ = tiny("vit")
    file = tmp_path / "a.png"
    file.write_bytes(content)
    samples = read_samples([str(file)], 8)

    def read():
        oddities(samples.items)
        pixels(samples.items, model, str(tmp_path))

    with pytest.raises(ValueError, match=r"cannot read the image .*a\.png"):
        read()


def test_a_drawing_is_not_taken_for_text(tmp_path):
    file = tmp_path / "a.svg"
    file.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    with pytest.raises(ValueError, match=r"a\.svg is neither text nor an image that can be read"):
        read_samples([str(file)], 8)
    assert read_samples(["a drawing.svg"], 8).items == ["a drawing.svg"]  # no such file: text


def test_images_of_odd_kinds(tmp_path):
    """16 bits are not cut off at 255, an animation says so, and CMYK and one pixel are fine."""
    pictures = pytest.importorskip("PIL.Image")
    from taut.models._data_files.images import image_preprocessing, normalised_images
    from taut.models.batches import describe_fit

    gray = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    pictures.fromarray(gray).save(tmp_path / "a.png")
    pictures.fromarray((gray // 257).astype(np.uint8)).save(tmp_path / "b.png")
    mine, eight = (
        normalised_images([str(tmp_path / name)], (8, 8), [0.0] * 3, [1.0] * 3)
        for name in ("a.png", "b.png")
    )
    assert (mine - eight).abs().max() < 0.01
    assert mine.mean() == pytest.approx(0.5, abs=0.01)
    for mode, name in (("CMYK", "c.jpg"), ("P", "d.png"), ("LA", "e.png"), ("1", "f.png")):
        pictures.new(mode, (1, 1)).save(tmp_path / name)
        assert normalised_images([str(tmp_path / name)], (8, 8), [0.0] * 3, [1.0] * 3).shape == (
            1,
            3,
            8,
            8,
        )
    frames = [pictures.new("RGB", (9, 9), (80 * i, 0, 0)) for i in range(3)]
    frames[0].save(tmp_path / "g.webp", save_all=True, append_images=frames[1:])
    model, _ = tiny("vit")
    samples = read_samples([str(tmp_path / "g.webp")], 8)
    found = describe_fit(samples, model, 9, image_preprocessing(model, str(tmp_path)))
    assert found["notes"] == ["1 of the images are animated; their first frame is used."]
    assert found["image_size"] == [model.config.image_size] * 2
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [1, 2]}')
    from taut.models._data_files.images import pixels

    with pytest.raises(ValueError, match=r"preprocessor_config\.json: image_mean"):
        pixels([str(tmp_path / "b.png")], model, str(tmp_path))


def sound(frames, *, channels=1, width=2, rate=16000):
    stream = io.BytesIO()
    with wave.open(stream, "wb") as written:
        written.setnchannels(channels)
        written.setsampwidth(width)
        written.setframerate(rate)
        written.writeframes(frames)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"no", b"RIFF" + bytes(40), sound(b""), sound(bytes(100))[:30], sound(bytes(100))[:-3],
     sound(bytes(90), width=3), sound(bytes(100)).replace(b"\x01\x00\x01\x00", b"\x01\x00\x00\x00"),
     sound(bytes(100)).replace(b"data", b"junk")],
    ids=range(9),
)  # fmt: skip
def test_sounds_that_are_none(content, tmp_path):
    from taut.models._data_files.sound import _wave

    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.wav"):
        _wave(str(tmp_path / "a.wav"), 16000)


TEXTS = {
    "a.txt": [b"", b"\n\n \n", b"\xff\xfe\x00", b"one\ntw\xf6\n", b"a\x00b", bytes(9 << 20)],
    "a.txt.gz": [
        b"",
        b"no",
        gzip.compress(b"one\ntwo\n" * 999)[:-20],
        gzip.compress(bytes(1 << 30)),
    ],
    "a.txt.bz2": [b"no", bz2.compress(b"one\n" * 999)[:-9]],
    "a.txt.xz": [b"no", lzma.compress(b"one\n" * 999)[:-9]],
    "a.jsonl": [b"", b"[]", b"1\n2", b'{"text": "a"}\n{"text"', b'{"a": 1}', b"[" * 9999, b"\xff"],
    "a.json": [b"", b"{", b"[1, 2]", b"[]", b'"a"', b"[" * 9999],
    "a.csv": [b"", b"a,b\n", b"a,b\n1,2\n", b"\xff"],
    "a.parquet": [b"", b"no", b"PAR1" + bytes(20)],
}


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, contents in TEXTS.items() for i in range(len(contents))]
)
def test_texts_that_are_none(name, index, tmp_path, monkeypatch):
    if name == "a.parquet":
        pytest.importorskip("datasets")
        monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(TEXTS[name][index])
    with pytest.raises(ValueError, match=r"a\."):
        read_samples([name], 9999)


def test_what_is_meant_as_a_file_is_no_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("missing.txt", "missing.jsonl", "missing.text.gz", "folder/missing", "m.md"):
        with pytest.raises(ValueError, match=f"there is no file {name}"):
            read_samples([name], 8)
    assert read_samples(["and/or, he said."], 8).items == ["and/or, he said."]
    assert read_samples(["word"], 8).items == ["word"]
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(ValueError, match="is not a regular file"):
        read_samples(["pipe.txt"], 8)


@pytest.mark.parametrize(
    ("ending", "pack"),
    [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)],
)
def test_packed_text(ending, pack, tmp_path):
    file = tmp_path / f"a.txt{ending}"
    file.write_bytes(pack("\ufeffone\r\n\ntwo\x0b still two\nthree\n".encode()))
    assert read_samples([str(file)], 2).items == ["one", "two\x0b still two"]
    rows = "\n".join(json.dumps({"label": "0", "goal": f"text {i}"}) for i in range(30))
    file = tmp_path / f"a.jsonl{ending}"
    file.write_bytes(pack(rows.encode()))
    found = read_samples([str(file)], 2)
    assert (found.items, found.column) == (["text 0", "text 1"], "goal")


def test_rows_in_text_files(tmp_path):
    """Lines of JSON are rows whatever the file is called, and of HellaSwag contexts are read."""
    rows = [{"goal": f"goal {i}", "sol1": "a long solution", "sol2": "another"} for i in range(9)]
    (tmp_path / "piqa.txt").write_text("\n".join(map(json.dumps, rows)))
    found = read_samples([str(tmp_path / "piqa.txt")], 3)
    assert (found.items, found.column) == (["goal 0", "goal 1", "goal 2"], "goal")
    assert any("JSON lines" in note for note in found.notes)
    assert any("sol1, sol2 (--column)" in note for note in found.notes)
    assert found.description["column"] == "goal"
    other = read_samples([str(tmp_path / "piqa.txt")], 3, "sol2")
    assert (other.items, other.column) == (["another"] * 3, "sol2")
    (tmp_path / "half.txt").write_text("\n".join([*map(json.dumps, rows * 3), "{"]))
    with pytest.raises(ValueError, match="line 28 is not JSON"):
        read_samples([str(tmp_path / "half.txt")], 99)
    lines = [f"context {i}\n{i % 4}\nwrong\nright\nwrong\nwrong" for i in range(5)]
    (tmp_path / "hellaswag.txt").write_text("\n".join(lines))
    found = read_samples([str(tmp_path / "hellaswag.txt")], 3)
    assert found.items == ["context 0", "context 1", "context 2"]
    assert "HellaSwag" in found.notes[0]
    plain = tmp_path / "plain.txt"
    plain.write_text("one\n2\nthree\nfour\nfive\nsix\n")
    assert len(read_samples([str(plain)], 9).items) == 6
    with pytest.raises(ValueError, match="--column is for tables"):
        read_samples([str(plain)], 9, "text")
    (tmp_path / "a.tsv").write_text("label\ttext\n0\tone\n1\ttwo\n")
    assert read_samples([str(tmp_path / "a.tsv")], 9).items == ["one", "two"]
    (tmp_path / "a.json").write_text(json.dumps([{"n": 1, "words": "a"}, {"words": "b"}]))
    assert read_samples([str(tmp_path / "a.json")], 9).items == ["a", "b"]
    (tmp_path / "b.csv").write_text(
        'id,notes,story\n1,x,"long\nstory"\n2,y,"' + "z" * 200_000 + '"\n'
    )
    assert [len(text) for text in read_samples([str(tmp_path / "b.csv")], 9).items] == [10, 200_000]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("good\t1\nbad\t0\n", "2 parts with tabs between"),
        ("one\n1\ntwo\n0\nthree\n1\n", "3 of 6 lines are bare numbers"),
        ("<html>\n<p>x</p>\n", "markup"),
        ('{"a": "b"}\n{"a"\n', "2 of 2 lines look like JSON"),
    ],
    ids=range(4),
)
def test_text_that_looks_like_something_else(text, said, tmp_path):
    (tmp_path / "a.txt").write_text(text)
    (note,) = read_samples([str(tmp_path / "a.txt")], 9).notes
    assert said in note
    assert note.startswith("a.txt: ")


def test_what_was_read_is_said(tmp_path, monkeypatch):
    """The column, what was cut off, a line of 200,000 characters: in record and on screen."""
    from taut.models.embedded import embedded_models

    model = embedded_models()["embedded-plain"]
    rows = [{"id": i, "story": "the king " * (400 if i else 2)} for i in range(3)]
    rows.append({"id": 3, "story": "x" * 200_000})
    (tmp_path / "a.txt").write_text("\n".join(map(json.dumps, rows)))
    done = command(
        "audit", model, "--data", "a.txt", "--max-length", 20, cwd=tmp_path, COLUMNS="150"
    )
    assert done.returncode == 0, done.stderr
    assert "Data: 4 samples (text) from a.txt, column 'story'." in done.stdout
    assert "3 of them were cut to 20 tokens; the longest has " in done.stdout
    assert "Note: a.txt holds JSON lines" in done.stdout
    (file,) = (tmp_path / "taut-audit").glob("*.json")
    data = json.loads(file.read_text())["data"]
    assert (data["column"], data["truncated"], data["max_length"]) == ("story", 3, 20)
    assert data["longest"] > 100_000
    assert "a.txt holds JSON lines" in file.with_suffix(".html").read_text()


def test_models_that_are_none(tmp_path):
    """Broken weights, configurations and tokenizers, and .gguf files: a line, and code 2."""
    model, _ = tiny("gpt2")
    (tmp_path / "x.txt").write_text("text")
    for name, file, content in (
        ("weights", "model.safetensors", b"no"),
        ("config", "config.json", b'{"model_type": 3}'),
        ("nothing", "config.json", b"["),
        ("words", "tokenizer.json", b"{}"),
    ):
        model.save_pretrained(tmp_path / name)
        (tmp_path / name / file).write_bytes(content)
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(30))
    (tmp_path / "b.gguf").write_bytes(b"no")
    (tmp_path / "c.gguf").write_bytes(b"")
    for name in ("weights", "config", "nothing", "words", "a.gguf", "b.gguf", "c.gguf"):
        done = command("audit", name, "--data", "x.txt", cwd=tmp_path)
        assert done.returncode == 2, (name, done.stderr)
        assert "Traceback" not in done.stderr
        assert name in done.stderr


def test_files_that_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a.png", "a.npy"):
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / name).chmod(0)
        if os.access(name, os.R_OK):
            pytest.skip("this user may read everything")

        def read(name=name):
            return read_samples([name], 8).description

        with pytest.raises(ValueError, match=f"{name}.*Permission denied"):
            read()
