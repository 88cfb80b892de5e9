"""Which folders a run takes, and what it says about the others."""

from __future__ import annotations

import json

import pytest
import torch

from icrl_agent.train.checkpoint import CHECKPOINT, PREVIOUS_CHECKPOINT
from icrl_agent.train.loop import pretrain

pytestmark = pytest.mark.usefixtures("no_pictures")


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuse(folder, config, match, *, resume):
    """One sentence, and nothing touched."""
    before = content(folder.parent)
    with pytest.raises(ValueError, match=match) as caught:
        pretrain(config, folder, resume=resume)
    assert "\n" not in str(caught.value)
    assert content(folder.parent) == before


@pytest.mark.parametrize("kind", ["run", "something else", "a file"])
def test_in_use(tiny, tmp_path, kind):
    folder = tmp_path / "run"
    if kind == "run":
        pretrain(tiny(), folder, stop_after=1)
    elif kind == "a file":
        folder.write_text("mine")
    else:
        folder.mkdir()
        (folder / "mine.txt").write_text("mine")
    refuse(folder, tiny(), "is in use: name a folder that is new or empty, or resume", resume=False)


FOREIGN = {
    "no config": (None, "holds no run to resume: it has no config.json"),
    "another command's": ('{"env": "BoyanChain-v0", "n_steps": 5}', "unknown field env"),
    "no JSON": ("{", "config.json is no configuration"),
    "a list": ("[1, 2]", "config.json is no configuration"),
    "null": ("null", "config.json is no configuration"),
    "wrong value": ('{"n_steps": 0}', "n_steps must be an integer of at least 1, got 0"),
    "seeds": ('{"n_seeds": 2, "n_steps": 8}', "holds several seeds, not one run"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_resume_in_a_foreign_folder(tiny, tmp_path, case):
    text, match = FOREIGN[case]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    if text is not None:
        (folder / "config.json").write_text(text)
    refuse(folder, tiny(), match, resume=True)


def test_another_configuration_names_the_fields(tiny, tmp_path):
    pretrain(tiny(), tmp_path / "run", stop_after=1)
    other = tiny(learning_rate=0.5, n_layers=(1, 4))
    match = r"another configuration \(n_layers: \(2, 4\) there, \(1, 4\) here; learning_rate: 0.01 there, 0.5 here\)"
    refuse(tmp_path / "run", other, match, resume=True)


def test_checkpoint_of_another_configuration_names_the_fields(tiny, tmp_path):
    pretrain(tiny(), tmp_path / "run", stop_after=1)
    (tmp_path / "run" / "config.json").write_text(json.dumps(tiny(seed=4).to_dict()))
    match = r"the checkpoint was made with another configuration \(seed: 0 there, 4 here\)"
    refuse(tmp_path / "run", tiny(seed=4), match, resume=True)


@pytest.mark.parametrize("kind", ["new", "empty", "nested"])
def test_a_free_folder_is_taken(tiny, tmp_path, kind):
    folder = tmp_path / "run" if kind != "nested" else tmp_path / "a" / "b" / "run"
    if kind == "empty":
        folder.mkdir()
    assert pretrain(tiny(n_steps=1), folder, resume=kind != "new").finished
    names = {"config.json", "metrics.csv", "validation.csv", "tensorboard", "checkpoint.pt", "weights.safetensors"}
    assert {path.name for path in folder.iterdir()} == names
    assert json.loads((folder / "config.json").read_text()) == tiny(n_steps=1).to_dict()


def test_damaged_checkpoint_with_a_good_previous_one(tiny, tmp_path, bit_equal, run_content):
    folder = tmp_path / "run"
    pretrain(tiny(), folder, stop_after=7)
    path = folder / CHECKPOINT
    assert [torch.load(folder / name)["step"] for name in (CHECKPOINT, PREVIOUS_CHECKPOINT)] == [7, 6]
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="checkpoint.pt is damaged.*going on from checkpoint.previous.pt"):
        pretrain(tiny(), folder, resume=True)
    pretrain(tiny(), tmp_path / "straight")
    assert bit_equal(run_content(folder), run_content(tmp_path / "straight"))


def test_damaged_checkpoints_are_refused(tiny, tmp_path):
    folder = tmp_path / "run"
    pretrain(tiny(), folder, stop_after=7)
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        (folder / name).write_bytes(b"nothing")
    refuse(folder, tiny(), "checkpoint.pt is damaged or no checkpoint.*previous.pt is damaged", resume=True)
