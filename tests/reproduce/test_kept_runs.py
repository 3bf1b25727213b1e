"""Records of trainings outlive a stop, and nothing else."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from taut.reproduce.kept_runs import kept_run  # noqa: E402


def test_a_record_is_read_again_only_if_it_was_made_from_the_same(tmp_path):
    made = []

    def train():
        made.append(1)
        return {"loss": float(len(made)), "certified": {"0.1": 2.0}}

    text = torch.arange(5)
    first = kept_run(tmp_path, "a", (text, 3), train)
    assert kept_run(tmp_path, "a", (text.clone(), 3), train) == first
    assert len(made) == 1
    assert kept_run(tmp_path, "a", (text + 1, 3), train)["loss"] == 2.0  # another text
    assert kept_run(tmp_path, "a", (text + 1, 4), train)["loss"] == 3.0  # another setting
    assert kept_run(tmp_path, "b", (text + 1, 4), train)["loss"] == 4.0


@pytest.mark.parametrize("broken", ["", "{", "[]", "3", '{"loss": 1.0}'])
def test_a_file_that_is_no_record_is_made_anew(tmp_path, broken):
    (tmp_path / "a.json").write_text(broken)
    assert kept_run(tmp_path, "a", (), lambda: {"loss": 5.0})["loss"] == 5.0
    assert kept_run(tmp_path, "a", (), pytest.fail)["loss"] == 5.0


def test_nothing_is_kept_of_a_training_that_fails(tmp_path):
    with pytest.raises(FloatingPointError):
        kept_run(tmp_path / "new", "a", (), lambda: (_ for _ in ()).throw(FloatingPointError()))
    assert not (tmp_path / "new").exists()
