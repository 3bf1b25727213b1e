"""Whatever stops an audit and however it goes on, its record is that of one run without a stop."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from audit_models import tiny  # noqa: E402
from audit_processes import LINES, processes, same  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("bert")
    tiny("bert")[0].save_pretrained(place)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran"]
    (place / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    found = processes(model, tmp_path_factory.mktemp("whole"), 1)
    assert found["samples"] == len(LINES)
    return found


@pytest.mark.parametrize("worlds", [(1, 2), (2, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize("gently", [False, True])
def test_resumed_with_other_processes(model, whole, tmp_path, worlds, gently):
    first, second = worlds
    stop = {"rank": first - 1, "at": "batch", "after": 2, "gently": gently}
    processes(model, tmp_path, first, stop=stop)
    assert list(tmp_path.glob("*.json"))
    same(processes(model, tmp_path, second), whole)
    assert len(list(tmp_path.iterdir())) == 1  # no parts, no locks


def test_resumed_again_and_again(model, whole, tmp_path):
    for world, rank, after in ((3, 1, 1), (2, 0, 1), (1, 0, 2), (3, 2, 0)):
        stop = {"rank": rank, "at": "batch", "after": after}
        processes(model, tmp_path, world, stop=stop)
    same(processes(model, tmp_path, 2), whole)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("at", ["write", "written", "remove"])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_killed_while_files_change(model, whole, tmp_path, at, after):
    processes(model, tmp_path, 2, stop={"rank": 1, "at": "batch", "after": 3})
    processes(model, tmp_path, 2, stop={"rank": after % 2, "at": at, "after": after})
    same(processes(model, tmp_path, 1), whole)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_random(model, whole, tmp_path, seed):
    source = random.Random(seed)
    for _ in range(4):
        world = source.randint(1, 3)
        stop = {
            "rank": source.randrange(world), "after": source.randrange(6),
            "at": source.choice(["batch", "write", "written", "remove"]),
            "gently": source.random() < 0.3,
        }  # fmt: skip
        processes(model, tmp_path, world, stop=stop)
    same(processes(model, tmp_path, source.randint(1, 3)), whole)
    assert len(list(tmp_path.iterdir())) == 1
