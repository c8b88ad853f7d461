"""Windows equal those of a naive reader of the arrays of an episode."""

from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from tests.datasets.conftest import Arrays, MakeEpisode

from stringline import Camera, Contract, EpisodeAttributes, EpisodeStore, Windows
from stringline.datasets.contract.contract import check_observation, instruction_number
from stringline.datasets.loading.mixture import MixedWindows, Source

LENGTHS = (20, 1, 7, 33)


@pytest.fixture
def episodes(make_episode: MakeEpisode) -> list[Arrays]:
    """Episodes of several lengths."""
    return [make_episode(steps=steps, seed=seed) for seed, steps in enumerate(LENGTHS)]


@pytest.fixture
def store(tmp_path: Path, contract: Contract, episodes: list[Arrays]) -> EpisodeStore:
    """A store of these episodes."""
    store = EpisodeStore.create(tmp_path / "store")
    for seed, arrays in enumerate(episodes):
        store.write(arrays, EpisodeAttributes(contract, "reach", seed))
    return store


def naive(arrays: Arrays, step: int, chunk: int, cameras: tuple[str, ...]) -> Arrays:
    """Returns one window by its definition."""
    window = {key: arrays[key][step] for key in ("time", "joints/position", "T_base_gripper/one")}
    for camera in cameras:
        frame = arrays[f"frame/{camera}"][step]
        window |= {
            f"{kind}/{camera}": arrays[f"{kind}/{camera}"][frame] for kind in ("rgb", "time")
        }
        window[f"intrinsics/{camera}"] = arrays[f"intrinsics/{camera}"]
        pose = arrays[f"T_base_camera/{camera}"]
        window[f"T_base_camera/{camera}"] = pose if pose.ndim == 2 else pose[frame]
        if camera == "front":
            window["depth/front"] = arrays["depth/front"][frame]
    last = len(arrays["time"]) - 1
    window["action"] = np.stack([arrays["action"][min(step + k, last)] for k in range(chunk)])
    window["action_mask"] = np.array([step + k <= last for k in range(chunk)])
    return window


@pytest.mark.parametrize("pad_last_action_steps", [0, 3, 20])
def test_the_last_action_is_a_target_for_some_steps_after_the_end(
    store: EpisodeStore, pad_last_action_steps: int
) -> None:
    windows = Windows(store, chunk=9, cameras=(), pad_last_action_steps=pad_last_action_steps)
    mixed = MixedWindows(
        [Source(store.path)],
        [store],
        chunk=9,
        cameras=(),
        pad_last_action_steps=pad_last_action_steps,
    )
    without = Windows(store, chunk=9, cameras=())
    chosen = np.arange(len(windows))
    batch = windows.batch(chosen)
    ahead = batch["step"][:, None] + np.arange(9)
    ends = np.array(LENGTHS)[batch["episode"]][:, None]
    np.testing.assert_array_equal(batch["action_mask"], ahead < ends + pad_last_action_steps)
    np.testing.assert_array_equal(batch["action"], without.batch(chosen)["action"])
    np.testing.assert_array_equal(batch["action_mask"], mixed.batch(chosen)["action_mask"])


def test_after_the_end_relative_actions_are_0(
    tmp_path: Path, contract: Contract, episodes: list[Arrays]
) -> None:
    """A repeated difference would move the target on."""
    moved, kept = contract.action
    relative = replace(contract, action=(replace(moved, mode="relative"), kept))
    store = EpisodeStore.create(tmp_path / "relative")
    for seed, arrays in enumerate(episodes):
        store.write(arrays, EpisodeAttributes(relative, "reach", seed))
    windows = Windows(store, chunk=9, cameras=(), pad_last_action_steps=20)
    batch = windows.batch(np.arange(len(windows)))
    for step, episode, action in zip(batch["step"], batch["episode"], batch["action"], strict=True):
        stored = episodes[int(windows.names[episode].split(".")[1])]["action"]
        for number, row in enumerate(action, int(step)):
            last = stored[min(number, len(stored) - 1)]
            np.testing.assert_array_equal(row, last if number < len(stored) else [0, last[1]])


def test_a_negative_time_of_holding_is_refused(store: EpisodeStore) -> None:
    with pytest.raises(
        ValueError, match=r"pad_last_action_steps must be an integer of at least 0 \(got -1\)"
    ):
        Windows(store, pad_last_action_steps=-1)


@pytest.mark.parametrize(
    ("cameras", "every"),
    [(("front", "wrist"), (4, 3)), (("wrist",), (3,)), (("front",), (4,)), ((), (1,))],
)
def test_every_window_equals_the_naive_one(
    store: EpisodeStore, episodes: list[Arrays], cameras: tuple[str, ...], every: tuple[int, ...]
) -> None:
    """Starts are the steps with a new image; contents, padding, types and memory layout fit."""
    windows = Windows(store, chunk=9, cameras=cameras)
    expected = [
        (e, t)
        for e, steps in enumerate(LENGTHS)
        for t in range(steps)
        if any(t % period == 0 for period in every)
    ]
    assert list(zip(windows.episode.tolist(), windows.step.tolist(), strict=True)) == expected
    shuffled = np.random.default_rng(0).permutation(len(windows))
    batch = windows.batch(shuffled)
    for row, index in enumerate(shuffled):
        episode, step = expected[index]
        for key, value in naive(episodes[episode], step, 9, cameras).items():
            np.testing.assert_array_equal(batch[key][row], value, err_msg=key)
            assert batch[key].dtype == np.asarray(value).dtype
            assert batch[key].flags.c_contiguous
        assert (
            (batch["episode"][row], batch["step"][row])
            == (episode, step)
            == (episode, windows.step[index])
        )


def test_a_window_is_an_observation(store: EpisodeStore, contract: Contract) -> None:
    """Windows pass the check that policies apply at run time; a batch is a stack of windows."""
    windows = Windows(store, chunk=4)
    check_observation(windows[5], contract)
    batch = windows.batch([5, 2, 5])
    for row, index in enumerate((5, 2, 5)):
        for key, value in windows[index].items():
            np.testing.assert_array_equal(batch[key][row], value)


def test_every_step(store: EpisodeStore) -> None:
    """On request every step begins a window."""
    assert len(Windows(store, every_step=True)) == sum(LENGTHS)


def test_choosing_episodes(store: EpisodeStore) -> None:
    """Episodes may be held out by name."""
    windows = Windows(store, names=store.names()[1:3])
    assert windows.names == tuple(store.names()[1:3])
    assert set(windows.batch(np.arange(len(windows)))["episode"]) == {0, 1}


def test_few_maps_suffice(store: EpisodeStore) -> None:
    """A cache of a single map returns the same contents and holds one map."""
    few, many = Windows(store, open_files=1), Windows(store)
    indices = np.random.default_rng(1).integers(0, len(few), 50)
    for key, value in many.batch(indices).items():
        np.testing.assert_array_equal(few.batch(indices)[key], value)
    assert len(few._maps) == 1
    assert len(many._maps) > 4


def test_reading_from_threads(store: EpisodeStore) -> None:
    """Threads that evict each other's maps still read the right images."""
    windows = Windows(store, open_files=2)
    expected = windows.batch(np.arange(len(windows)))["rgb/front"]
    wrong: list[int] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            indices = rng.integers(0, len(windows), 16)
            if not np.array_equal(windows.batch(indices)["rgb/front"], expected[indices]):
                wrong.append(seed)

    threads = [Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_mistakes_are_explained(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode, tmp_path: Path
) -> None:
    """An empty store, an unknown camera, a bad index and mixed contracts each get a message."""
    with pytest.raises(ValueError, match="no episodes to train from"):
        Windows(EpisodeStore.create(tmp_path / "empty"))
    with pytest.raises(ValueError, match=r"no camera 'frond'\. Did you mean 'front'"):
        Windows(store, cameras=("frond",))
    with pytest.raises(ValueError, match="chunk must be an integer of at least 1"):
        Windows(store, chunk=0)
    windows = Windows(store)
    for wrong in (len(windows), -1):
        with pytest.raises(IndexError, match="There are windows 0 to"):
            windows.batch([wrong])
    store.write(make_episode(), EpisodeAttributes(replace(contract, control_hz=10.0), "reach", 99))
    with pytest.raises(ValueError, match="does not fit the previous ones. control_hz"):
        Windows(store)


def test_images_of_another_size_are_refused(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Two sizes of one camera cannot share a batch; leaving that camera out helps."""
    arrays = make_episode()
    arrays["rgb/front"], arrays["depth/front"] = (
        arrays["rgb/front"][:, :5],
        arrays["depth/front"][:, :5],
    )
    other = contract.with_cameras(
        Camera("front", 5, 8, depth="simulated"), contract.camera("wrist")
    )
    store.write(arrays, EpisodeAttributes(other, "reach", 99))
    with pytest.raises(ValueError, match="camera 'front': height is 6 and 5"):
        Windows(store)
    assert len(Windows(store, cameras=("wrist",))) > 0


def test_the_past_equals_the_naive_one(store: EpisodeStore, episodes: list[Arrays]) -> None:
    """Past keys repeat the first step before the beginning, where the mask is False."""
    windows, plain = Windows(store, chunk=3, past=(2, 11, 1)), Windows(store, chunk=3)
    assert windows.settings.past == (11, 2, 1)
    shuffled = np.random.default_rng(0).permutation(len(windows))
    batch, without = windows.batch(shuffled), plain.batch(shuffled)
    assert set(batch) - set(without) == {
        f"past/{key}" for key in naive(episodes[0], 0, 3, ("front", "wrist"))
    } - {"past/action", "past/action_mask"} | {"past_mask"}
    for key, value in without.items():
        np.testing.assert_array_equal(batch[key], value)
    for row, index in enumerate(shuffled):
        episode, step = int(windows.episode[index]), int(windows.step[index])
        for place, back in enumerate((11, 2, 1)):
            assert batch["past_mask"][row, place] == (step >= back)
            expected = naive(episodes[episode], max(step - back, 0), 3, ("front", "wrist"))
            for key in expected.keys() - {"action", "action_mask"}:
                np.testing.assert_array_equal(
                    batch[f"past/{key}"][row, place], expected[key], err_msg=key
                )
                assert batch[f"past/{key}"].dtype == np.asarray(expected[key]).dtype


@pytest.mark.parametrize("past", [(0,), (-1,), (3, 3)])
def test_invalid_pasts_are_refused(store: EpisodeStore, past: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"past is .* different offsets, each 1 or above"):
        Windows(store, past=past)


def test_the_past_of_the_state_alone(store: EpisodeStore) -> None:
    """Without images the past has the same state and no keys of cameras."""
    whole = Windows(store, chunk=3, past=(5, 2))
    state = Windows(store, chunk=3, past=(5, 2), past_images=False)
    indices = np.arange(len(whole))
    expected, found = whole.batch(indices), state.batch(indices)
    kept = {"past/time", "past/joints/position", "past/T_base_gripper/one", "past_mask"}
    assert {key for key in found if key.startswith("past")} == kept
    for key, value in found.items():
        np.testing.assert_array_equal(value, expected[key], err_msg=key)


def test_a_past_longer_than_all_episodes_is_refused(store: EpisodeStore) -> None:
    assert len(Windows(store, past=(32,))) > 0
    with pytest.raises(ValueError, match="past is .*, but the longest episode of .*store has 33"):
        Windows(store, past=(2, 33))


def test_windows_contain_the_number_of_their_instruction(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    store = EpisodeStore.create(tmp_path / "instructions")
    for seed, text in enumerate(("touch it", "")):
        store.write(
            make_episode(seed=seed), EpisodeAttributes(contract, "reach", seed, instruction=text)
        )
    windows = Windows(store, chunk=2)
    expected = np.array([instruction_number("touch it"), 0])[windows.episode]
    np.testing.assert_array_equal(
        windows.batch(np.arange(len(windows)))["instruction_number"], expected
    )
    assert expected.max() > 0
