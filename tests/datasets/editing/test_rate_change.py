"""Copies at another rate: times, values and images stay where they were; events are not lost."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.datasets.conftest import Arrays, DataCommand

from stringline.datasets.contract.contract import ActionDimension, Camera, Contract
from stringline.datasets.editing.rate_change import Grid, RateChange, resample
from stringline.datasets.embodiments.transforms import pose, rotation_about
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.store import EpisodeStore

STEPS = 41
FIRST_S = 3.0
DIMENSIONS = {
    "joint": ActionDimension("one/waist", "one", "joint"),
    "gripper": ActionDimension("one/gripper", "one", "gripper", unit="opening"),
    "moved": ActionDimension("one/x", "one", "position", "relative", "m", "base"),
    **{
        f"{mode} {axis}": ActionDimension(f"{mode}_{axis}", "one", "rotation", mode, "rad", "base")  # type: ignore[arg-type]
        for mode in ("absolute", "relative")
        for axis in "xyz"
    },
}


def recorded(steps: int = STEPS, hz: float = 50.0, **changes: Any) -> tuple[Arrays, Contract]:
    """Returns an episode of linear motions, with an image of the wrist at every second step."""
    contract = Contract(
        "small",
        "table",
        hz,
        (Camera("wrist", 4, 4, depth="simulated"), Camera("front", 6, 8, has_geometry=False)),
        ("waist", "gripper"),
        ("one",),
        (DIMENSIONS["joint"], DIMENSIONS["gripper"]),
    )
    rng = np.random.default_rng(0)
    since = np.arange(steps) / hz
    opening = 0.5 + 0.3 * np.sin(2 * since)
    turned = [pose((s, 0, 0), rotation_about((0, 0, 1), 2 * s)) for s in since]
    arrays: Arrays = {
        "time": FIRST_S + since,
        "joints/position": np.stack([3 * since, opening], axis=1).astype(np.float32),
        "joints/velocity": np.full((steps, 2), 3, np.float32),
        "T_base_gripper/one": np.array(turned, np.float32),
        "action": np.stack([3 * since + 0.1, opening], axis=1).astype(np.float32),
        "reward": (np.arange(steps) == steps - 1).astype(np.float32),
        "stage": (np.arange(steps) * 4 // steps).astype(np.int32),
        "sim/state": rng.normal(size=(steps, 3)),
        "series/force": np.outer(since, (1, -2)).astype(np.float32) + np.float32(0.25),
        "series/last": (np.arange(steps) == steps - 1).astype(np.float64),
    }
    for name, size, every in (("wrist", (4, 4), 2), ("front", (6, 8), 1)):
        frames = -(-steps // every)
        arrays[f"rgb/{name}"] = rng.integers(0, 256, (frames, *size, 3), np.uint8)
        arrays[f"frame/{name}"] = (np.arange(steps) // every).astype(np.int32)
        arrays[f"time/{name}"] = arrays["time"][::every] - 0.004
    arrays["depth/wrist"] = rng.integers(0, 5000, (len(arrays["rgb/wrist"]), 4, 4), np.uint16)
    arrays["intrinsics/wrist"] = np.eye(3, dtype=np.float32)
    moving = rng.normal(size=(len(arrays["rgb/wrist"]), 4, 4))
    arrays["T_base_camera/wrist"] = moving.astype(np.float32)
    return arrays | changes, contract


def store_of(path: Path, arrays: Arrays, contract: Contract) -> EpisodeStore:
    store = EpisodeStore.create(path)
    store.write(arrays, EpisodeAttributes(contract, "reach", 0, extra={"scale": 2}))
    return store


def changed(
    path: Path, rate_hz: float, made: tuple[Arrays, Contract] | None = None, **settings: Any
) -> tuple[StoredEpisode, StoredEpisode]:
    """Returns an episode and its copy at another rate."""
    store = store_of(path / "store", *(made or recorded()))
    copy = resample(store, path / "copy", RateChange(rate_hz, **settings))
    assert not copy.verify(copy.names()[0])
    return store.episodes()[0], copy.episodes()[0]


@pytest.mark.parametrize(("rate_hz", "steps"), [(20, 17), (30, 25), (50, 41), (60, 49), (100, 81)])
def test_everything_stays_at_its_time(tmp_path: Path, rate_hz: float, steps: int) -> None:
    old, new = changed(tmp_path, rate_hz)
    assert new.name == old.name
    assert new.attributes.contract == replace(old.attributes.contract, control_hz=rate_hz)
    assert new.attributes.extra["scale"] == 2
    assert new.attributes.extra["resampled"]["rate_hz"] == rate_hz
    a, b = old.arrays, new.arrays
    since = np.arange(steps) / rate_hz
    np.testing.assert_allclose(b["time"], FIRST_S + since, rtol=1e-12)
    since = np.minimum(since, 0.8)  # The last step shows the end.
    np.testing.assert_allclose(b["joints/position"][:, 0], 3 * since, atol=1e-5)
    np.testing.assert_allclose(b["action"][:, 0], 3 * since + 0.1, atol=1e-5)
    np.testing.assert_allclose(b["action"][:, 1], 0.5 + 0.3 * np.sin(2 * since), atol=1e-3)
    np.testing.assert_allclose(b["series/force"], np.outer(since, (1, -2)) + 0.25, atol=1e-5)
    turned = [pose((s, 0, 0), rotation_about((0, 0, 1), 2 * s)) for s in since]
    np.testing.assert_allclose(b["T_base_gripper/one"], turned, atol=1e-5)
    assert {key: array.dtype for key, array in b.items()} == {k: v.dtype for k, v in a.items()}
    # Events.
    assert b["reward"].sum() == b["reward"][-1] == 1
    assert (b["series/last"].sum(), b["series/last"][-1]) == (1, 1)
    np.testing.assert_array_equal(np.unique(b["stage"]), np.arange(4))
    assert (np.diff(b["stage"]) >= 0).all()
    assert all((a["sim/state"] == row).all(1).any() for row in b["sim/state"])
    assert len(Windows(EpisodeStore.open(tmp_path / "copy"))) > 0


@pytest.mark.parametrize("rate_hz", [10, 20, 30, 50, 75, 100])
def test_steps_show_the_same_images(tmp_path: Path, rate_hz: float) -> None:
    old, new = changed(tmp_path, rate_hz)
    a, b = old.arrays, new.arrays
    apart = np.abs(b["time"][:, None] - a["time"])
    nearest = np.argmin(np.round(apart, 9), axis=1)
    for name in ("wrist", "front"):
        was = a[f"frame/{name}"][nearest]
        for kind in ("rgb", "depth", "time", "T_base_camera"):
            if (key := f"{kind}/{name}") in a:
                np.testing.assert_array_equal(b[key][b[f"frame/{name}"]], a[key][was], err_msg=key)
        assert b[f"frame/{name}"][-1] == len(b[f"rgb/{name}"]) - 1
        np.testing.assert_array_equal(b[f"rgb/{name}"][-1], a[f"rgb/{name}"][-1])
        assert set(b[f"frame/{name}"]) == set(range(len(b[f"rgb/{name}"])))
        assert (a[f"time/{name}"][was] <= b["time"] + 0.5 / 50).all()
    np.testing.assert_array_equal(b["intrinsics/wrist"], a["intrinsics/wrist"])


@pytest.mark.parametrize("rate_hz", [50, 100, 150, 250])
def test_there_and_back_changes_nothing(tmp_path: Path, rate_hz: float) -> None:
    old, _ = changed(tmp_path, rate_hz)
    back = resample(EpisodeStore.open(tmp_path / "copy"), tmp_path / "back", RateChange(50))
    found = back.episodes()[0].arrays
    assert set(found) == set(old.arrays)
    for key, array in old.arrays.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)
    images = [root / old.name / "rgb.wrist" for root in (old.path.parent, back.path)]
    inodes = [{file.stat().st_ino for file in each.rglob("*.crc32")} for each in images]
    assert inodes[0] == inodes[1]  # Shared on the disk.


@given(
    st.integers(1, 60), st.floats(2, 200), st.floats(2, 200), st.integers(0, 9), st.floats(0, 0.1)
)
def test_the_new_steps_cover_the_recording(
    steps: int, old_hz: float, rate_hz: float, seed: int, jitter: float
) -> None:
    shifts = np.random.default_rng(seed).uniform(-jitter, jitter, steps)
    grid = Grid.of((np.arange(steps) + shifts) / old_hz, old_hz, rate_hz)
    assert grid.new[0] == grid.old[0]
    np.testing.assert_allclose(np.diff(grid.new), 1 / rate_hz)
    assert grid.nearest[-1] == steps - 1
    assert grid.new[-1] < grid.old[-1] + 1 / rate_hz
    distance = np.abs(grid.new[:, None] - grid.old)
    np.testing.assert_allclose(
        distance[np.arange(len(grid.new)), grid.nearest], distance.min(axis=1), atol=2e-6 / old_hz
    )
    np.testing.assert_allclose(grid.linear(grid.old), np.minimum(grid.new, grid.old[-1]))
    amounts = np.random.default_rng(seed).normal(size=steps)
    np.testing.assert_allclose(grid.sums(amounts).sum(), amounts.sum(), atol=1e-9)
    np.testing.assert_allclose(grid.motions(amounts).sum(), amounts.sum(), atol=1e-9)


def acting(values: Any, *names: str, hz: float = 50.0) -> tuple[Arrays, Contract]:
    """Returns an episode with other actions (T, A), of dimensions by name."""
    action = np.asarray(values, np.float32)
    arrays, contract = recorded(len(action), hz, action=action)
    return arrays, replace(contract, action=tuple(DIMENSIONS[name] for name in names))


def pulse(first: int, length: int, steps: int = STEPS) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns numbers (T,) that are 0 but for a pulse of 1."""
    at = np.arange(steps)
    return ((at >= first) & (at < first + length)).astype(np.float64)


@pytest.mark.parametrize("rate_hz", [10, 20, 30, 75, 100])
@pytest.mark.parametrize("first", [9, 10, 11, 13])
def test_a_short_command_of_a_switch_stays(tmp_path: Path, rate_hz: float, first: int) -> None:
    switch = 1 - pulse(first, 2)
    made = acting(np.stack([np.linspace(0, 1, STEPS), switch], 1), "joint", "gripper")
    action = changed(tmp_path, rate_hz, made)[1].arrays["action"][:, 1]
    assert set(action) == {0, 1}
    closed = np.flatnonzero(action == 0)
    assert np.count_nonzero(np.diff(action)) == 2
    assert np.abs(closed / rate_hz - (first + 0.5) / 50).max() <= 1 / rate_hz + 0.02


def test_motions_add_up_to_the_same_path(tmp_path: Path) -> None:
    steps = np.random.default_rng(0).normal(size=(STEPS, 1)) * 0.01
    made = acting(steps, "moved")
    with pytest.raises(ValueError, match="one/x are relative to the measured state.* relative=sum"):
        changed(tmp_path / "refused", 25, made)
    new = changed(tmp_path, 25, made, relative="sum")[1].arrays["action"]
    padded = np.append(steps[:, 0], 0)
    np.testing.assert_allclose(new[:, 0], padded.reshape(-1, 2).sum(1), atol=1e-6)


def test_angles_and_rotations_that_wrap_are_not_mixed(tmp_path: Path) -> None:
    wrapped = (3.1 + 0.02 * np.arange(STEPS) + np.pi) % (2 * np.pi) - np.pi
    turns = np.stack([wrapped, 0 * wrapped, 0 * wrapped], axis=1)
    made = acting(np.column_stack([wrapped, turns]), "joint", *(f"absolute {a}" for a in "xyz"))
    made[0]["joints/position"][:, 0] = wrapped
    arrays = changed(tmp_path, 100, made)[1].arrays
    for angles in (arrays["action"][:, 0], arrays["action"][:, 1], arrays["joints/position"][:, 0]):
        assert np.abs(angles).min() > 2.2
        assert (np.abs(np.diff(np.unwrap(angles))) < 0.021).all()


def gap(arrays: Arrays) -> None:
    arrays["time"][20:] += 0.3


def slower(arrays: Arrays) -> None:
    arrays["time"] = FIRST_S + 2 * (arrays["time"] - FIRST_S)


def flag(arrays: Arrays) -> None:
    arrays["series/touch"] = np.arange(STEPS) % 2 * 1.0


def stages(arrays: Arrays) -> None:
    arrays["stage"] = (np.arange(STEPS) // 2).astype(np.int32)


def strokes(arrays: Arrays) -> None:
    arrays["action"][:, 1] = 0.5 + 0.3 * np.sin(np.arange(STEPS) * np.pi / 2 + 0.3)


@pytest.mark.parametrize(
    ("spoil", "settings", "message"),
    [
        (gap, {}, r"no step is between 0\.380 and 0\.700 s; allowed: largest_gap_s=0\.06\. `stri"),
        (slower, {}, r"its steps are 0\.04 s apart, its contract says 50 Hz"),
        (flag, {}, r"series/touch changes 40 times, .* leave_out=\[series/touch\]"),
        (stages, {}, "stage changes 20 times, some of them faster than the new steps"),
        (strokes, {}, "the command of one/gripper turns .* Choose a larger rate_hz"),
        (lambda _: None, {"leave_out": ("series/forces",)}, "Did you mean 'series/force'"),
    ],
)
def test_what_would_not_be_right_is_refused_before_anything_is_written(
    tmp_path: Path, spoil: Callable[[Arrays], None], settings: dict[str, Any], message: str
) -> None:
    arrays, contract = recorded()
    spoil(arrays)
    with pytest.raises(ValueError, match=message):
        changed(tmp_path, 10, (arrays, contract), **settings)
    assert not (tmp_path / "copy").exists()


def test_the_refusals_have_ways_out(tmp_path: Path) -> None:
    arrays, contract = recorded()
    gap(arrays)
    flag(arrays)
    _, new = changed(
        tmp_path, 10, (arrays, contract), largest_gap_s=0.4, leave_out=("series/touch",)
    )
    assert "series/touch" not in new.arrays


def test_rotations_that_do_not_add_are_refused(tmp_path: Path) -> None:
    turns = np.zeros((STEPS, 3))
    turns[::2, 0], turns[1::2, 1] = 0.2, 0.2
    made = acting(turns, *(f"relative {axis}" for axis in "xyz"))
    with pytest.raises(ValueError, match="the action turns by 0.4 rad at 0.00 s, about several"):
        changed(tmp_path, 25, made, relative="sum")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate_hz": 0}, "rate_hz"),
        ({"rate_hz": 20, "largest_gap_s": -1}, "largest_gap_s"),
        ({"rate_hz": 20, "relative": "add"}, "There is no rule for relative actions 'add'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateChange(**settings)


def test_a_copy_is_completed_and_keeps_its_rate(tmp_path: Path) -> None:
    changed(tmp_path, 20)
    store, copy = EpisodeStore.open(tmp_path / "store"), tmp_path / "copy"
    arrays, contract = recorded(7)
    store.write(arrays, EpisodeAttributes(contract, "reach", 1))
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("zarr.json")}
    assert len(resample(store, copy, RateChange(20))) == 2
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    with pytest.raises(ValueError, match="has episodes of another rate or of other settings"):
        resample(store, copy, RateChange(25))


@pytest.mark.slow
def test_the_command_resamples_a_store(tmp_path: Path, data_command: DataCommand) -> None:
    store = store_of(tmp_path / "store", *recorded())
    words = [f"store={store.path}", f"output={tmp_path / 'copy'}", "rate_hz=20"]
    status, out, _ = data_command("resample", *words)
    assert status == 0
    assert out.endswith("copy: 1 episodes, 17 steps at 20 Hz, from 41 at 50 Hz.\n")
