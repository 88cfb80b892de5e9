"""A run folder appears whole or not at all."""

import pytest

from icrl_agent.eval.run_folder import check_free, new_run_folder


def test_folder_appears_with_its_content(tmp_path):
    target = tmp_path / "deep" / "run"
    with new_run_folder(target) as folder:
        assert not target.exists()
        (folder / "a.txt").write_text("a")
    assert (target / "a.txt").read_text() == "a"
    assert list(target.parent.iterdir()) == [target]


def test_nothing_is_left_after_an_error(tmp_path):
    def write_half():
        with new_run_folder(tmp_path / "run") as folder:
            (folder / "a.txt").write_text("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "run").mkdir()
    with new_run_folder(tmp_path / "run") as folder:
        (folder / "a.txt").write_text("a")
    assert (tmp_path / "run" / "a.txt").exists()


@pytest.mark.parametrize("make", ["file", "folder"])
def test_a_place_in_use_is_refused(tmp_path, make):
    place = tmp_path / "run"
    if make == "file":
        place.write_text("x")
    else:
        place.mkdir()
        (place / "x").write_text("x")
    with pytest.raises(ValueError, match="in use"):
        check_free(place)
