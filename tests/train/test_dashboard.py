"""Event files read back: exact tags, the numbers of the CSV files, charts of tags that exist, bounded size."""

from __future__ import annotations

import contextlib
import csv
import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from torch.utils.tensorboard import SummaryWriter

from icrl_agent.train import dashboard
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.loop import pretrain
from icrl_agent.train.validation import validation_lengths

SCALARS = {
    *(f"train/{name}" for name in ("td_loss", "neu", "learning_rate", "prompts_per_second")),
    *(f"emergence/{name}" for name in (
        "kdm_mean", "kdm_min", "value_reward", "value_target", "value_current", "attention_diagonal",
        "attention_off_diagonal", "theory_distance")),
    *(f"validation/{name}_n5" for name in ("error", "ratio", "empty_context", "other_task")),
    *(f"final/{name}" for name in ("td_loss", "kdm_mean", "theory_distance")),
}  # fmt: skip
IMAGES = {"emergence/A", "emergence/V", "emergence/kernel"}


def read(folder):
    events = EventAccumulator(str(folder), {"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    return events


@pytest.fixture(scope="module")
def events(finished_run):
    return read(finished_run[1] / "tensorboard")


def test_exact_tags(events):
    assert set(events.Tags()["scalars"]) == SCALARS
    assert set(events.Tags()["images"]) == IMAGES
    assert f"{dashboard.CONFIG_TEXT}/text_summary" in events.Tags()["tensors"]


def test_tags_are_short():
    names = [*dashboard.TRAIN, *dashboard.EMERGENCE]
    names += [tag.split("/", 1)[1] for tag in (
        dashboard.PROMPTS_PER_SECOND, dashboard.ATTENTION_IMAGE, dashboard.VALUE_IMAGE, dashboard.KERNEL_IMAGE,
        dashboard.ERROR_CURVE, dashboard.ERROR_TABLE, dashboard.VALUES_FIGURE, dashboard.ERROR_FIGURE,
        *(dashboard.validation_tag(name, 9999) for name in (
            "error", "ratio", dashboard.EMPTY_CONTEXT, dashboard.OTHER_TASK)))]  # fmt: skip
    assert max(map(len, names)) <= 33


def rows_by_step(path):
    return {int(row["step"]): row for row in csv.DictReader(path.read_text().splitlines())}


def check_curves(events, folder):
    """At least two points each, and every point is the number in the CSV file, in the file's float32."""
    metrics, validation = (rows_by_step(folder / name) for name in ("metrics.csv", "validation.csv"))
    for tag in events.Tags()["scalars"]:
        group, name = tag.split("/")
        if group == "final":
            continue
        points = {point.step: point.value for point in events.Scalars(tag)}
        assert len(points) == len(events.Scalars(tag)) >= 2, tag
        if tag == dashboard.PROMPTS_PER_SECOND:
            assert min(points.values()) > 0
            continue
        rows = validation if group == "validation" else metrics
        column = name.removesuffix("_n5")
        assert points == {step: pytest.approx(float(row[column]), rel=2.0**-23) for step, row in rows.items()}, tag


def test_curves_are_the_csv_files(events, finished_run):
    check_curves(events, finished_run[1])


@pytest.mark.parametrize("name", ["metrics.csv", "validation.csv"])
@pytest.mark.parametrize("change", ["shifted", "a row lost"])
def test_the_curve_check_catches(events, finished_run, tmp_path, name, change):
    for file in ("metrics.csv", "validation.csv"):
        (tmp_path / file).write_text((finished_run[1] / file).read_text())
    heading, *rows = (tmp_path / name).read_text().splitlines()
    steps = [row.split(",", 1)[0] for row in rows]
    if change == "shifted":
        rows = [f"{step},{row.split(',', 1)[1]}" for step, row in zip(steps, rows[1:] + rows[:1], strict=True)]
    else:
        rows = rows[:-1]
    (tmp_path / name).write_text("\n".join([heading, *rows]) + "\n")
    with pytest.raises(AssertionError):
        check_curves(events, tmp_path)


def test_images_at_every_validation(events, finished_run):
    config = finished_run[0]
    for tag in IMAGES:
        images = events.Images(tag)
        assert [image.step for image in images] == [0, config.validate_every, config.n_steps]
        for image in images:
            assert image.encoded_image_string[:4] == b"\x89PNG"
            assert min(image.width, image.height) >= 300
        assert len({image.encoded_image_string for image in images}) > 1


def test_text_is_the_configuration(events, finished_run):
    (text,) = events.Tensors(f"{dashboard.CONFIG_TEXT}/text_summary")
    body = text.tensor_proto.string_val[0].decode()
    assert json.loads(body.removeprefix("```json").removesuffix("```")) == finished_run[0].to_dict()


def test_layout_names_only_tags_that_exist(events):
    (layout,) = events.Tensors("custom_scalars__config__")
    message = layout_pb2.Layout.FromString(layout.tensor_proto.string_val[0])
    named = {tag for page in message.category for chart in page.chart for tag in chart.multiline.tag}
    assert {page.title for page in message.category} == {"emergence", "validation"}
    assert len(named) > 8
    assert named <= set(events.Tags()["scalars"])


def test_layout_of_every_preset_names_validation_tags():
    """Charts and curves are made from the same lengths."""
    config = PretrainConfig(context_length=(8, 256))
    named = []

    class Writer:
        def add_custom_scalars(self, layout):
            named.extend(tag for charts in layout.values() for _, tags in charts.values() for tag in tags)

    dashboard.write_layout(Writer(), validation_lengths(config))
    lengths = validation_lengths(config)
    assert {tag for tag in named if tag.startswith("validation/ratio")} == {f"validation/ratio_n{n}" for n in lengths}


def test_hyperparameters_are_in_the_run_s_own_folder(events, finished_run):
    config, folder, result = finished_run
    assert [path for path in (folder / "tensorboard").rglob("*") if path.is_dir()] == []
    assert len(list((folder / "tensorboard").iterdir())) == 1
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    info = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert set(info.hparams) == set(config.to_dict())
    assert info.hparams["learning_rate"].number_value == config.learning_rate
    assert json.loads(info.hparams["n_states"].string_value) == list(config.n_states)
    for name in ("td_loss", "kdm_mean", "theory_distance"):
        (point,) = events.Scalars(f"final/{name}")
        assert point.value == pytest.approx(result.metrics[-1][name], rel=2.0**-23)


@pytest.mark.usefixtures("no_pictures")
def test_a_log_of_default_length_stays_below_five_megabytes(tiny, tmp_path, events):
    """Bytes per row and per validation from short runs, times the numbers of the paper preset."""
    default, n_steps = PretrainConfig(), 40
    runs = {
        "bare": tiny(n_steps=n_steps, log_every=n_steps, validate_every=n_steps),
        "rows": tiny(n_steps=n_steps, log_every=1, validate_every=n_steps),
        "validations": tiny(n_steps=n_steps, log_every=n_steps, validate_every=1),
    }
    size = {}
    for name, config in runs.items():
        pretrain(config, tmp_path / name)
        size[name] = sum(path.stat().st_size for path in (tmp_path / name / "tensorboard").iterdir())
    per_row, per_validation = ((size[name] - size["bare"]) / (n_steps - 1) for name in ("rows", "validations"))
    # A scalar takes at least its tag, a step and a value; a picture at least a few thousand pixels.
    assert per_row > 30 * 11
    assert per_validation > 30 * 4
    pictures = [max(len(image.encoded_image_string) for image in events.Images(tag)) for tag in IMAGES]
    assert min(pictures) > 1000
    # Up to four context lengths. Larger matrices have more to draw: three times the bytes is generous.
    validation = 4 * per_validation + 3 * sum(pictures)
    total = size["bare"] + default.n_steps / default.log_every * per_row
    total += (default.n_steps / default.validate_every + 1) * validation
    assert total < 5e6


@pytest.mark.usefixtures("no_pictures")
def test_points_are_readable_after_the_loop_raised(tiny, tmp_path):
    def fail(step, _rate):
        if step == 5:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        pretrain(tiny(log_every=1), tmp_path / "run", progress=fail)
    assert [point.step for point in read(tmp_path / "run" / "tensorboard").Scalars("train/td_loss")] == list(range(6))


def fail_while_writing(open_writer, folder, opened):
    with open_writer(folder) as writer:
        opened.append(writer)
        for step in range(3):
            writer.add_scalar("a/b", step, step)
        raise RuntimeError


def check_closing(open_writer, folder):
    opened = []
    with pytest.raises(RuntimeError):
        fail_while_writing(open_writer, folder, opened)
    # A closed writer holds no file; an open one may have points in its queue still.
    assert opened[0].all_writers is None
    events = read(folder)
    assert [point.step for point in events.Scalars("a/b")] == [0, 1, 2]


def test_writer_is_closed_whatever_happens(tmp_path):
    check_closing(dashboard.open_writer, tmp_path)


def test_the_closing_check_catches(tmp_path):
    kept = []

    @contextlib.contextmanager
    def left_open(folder):
        kept.append(SummaryWriter(str(folder)))
        yield kept[0]

    with pytest.raises(AssertionError):
        check_closing(left_open, tmp_path)
    kept[0].close()
