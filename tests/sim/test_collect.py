"""Collected episodes depend on their seeds alone, and a stopped collection continues."""

import sys
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tests.sim.in_process import InProcess

from stringline.datasets.contract.contract import FIRST_FOREGROUND_SEGMENT, check_episode
from stringline.datasets.editing.derived_stores import Resolution, cache
from stringline.datasets.editing.edit import part_of
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import collect, open_recipe_world
from stringline.sim.collection.collection_state import COLLECTION_FILE, Collection, Outcome, Recipe
from stringline.sim.collection.demonstration import ornstein_uhlenbeck, record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.rollout.jobs import shared
from stringline.sim.rollout.workers import TaskResult, WorkerReady, Workers
from stringline.sim.rollout.world_interface import Simulation
from stringline.sim.tasks import success
from stringline.sim.worlds.world_registry import make_any_expert
from stringline.sim.worlds.world_versions import physics_digest, world_versions

SMALL = Recipe(
    varied=False, cameras=("overhead", "wrist_left"), image_size=16, frame_hz=5.0, noise_rad=0.02
)
BRIEF = replace(SMALL, time_limit_s=2.0, keep_failures=True)
HOPELESS = replace(SMALL, time_limit_s=0.1)


@dataclass(frozen=True)
class LoadedModules:
    """Returns the modules that a worker has imported."""

    def run(self, world: Simulation) -> list[str]:
        return sorted(name for name in sys.modules if "." not in name)


@pytest.mark.slow
def test_workers_import_no_torch() -> None:
    with Workers(partial(open_recipe_world, SMALL), 1) as workers:
        for worker, message in workers.messages():
            if isinstance(message, WorkerReady):
                worker.send(LoadedModules())
            elif isinstance(message, TaskResult):
                assert isinstance(message.result, list)
                assert "mujoco" in message.result
                assert "torch" not in message.result
                return


@pytest.mark.slow
def test_a_store_holds_what_a_single_process_records_however_it_was_collected(
    tmp_path: Path,
) -> None:
    with closing(InProcess()) as here:
        collect(BRIEF, tmp_path, 1, cluster=here)
    before = EpisodeStore.open(tmp_path).names()
    (
        tmp_path / COLLECTION_FILE
    ).unlink()  # As after a crash between storing the episode and writing it down.
    collection = collect(BRIEF, tmp_path, 3, workers=2)
    store = EpisodeStore.open(tmp_path)
    assert store.names()[:1] == before
    assert [outcome.seed for outcome in collection.outcomes] == [0, 1, 2]
    world, expert = open_recipe_world(BRIEF), make_any_expert(BRIEF.task, varied=False)
    for episode in reversed(store.episodes()):
        arrays = record_episode(
            world, expert, episode.attributes.seed, noise_rad=BRIEF.noise_rad
        ).arrays
        assert set(episode.arrays) == set(arrays)
        for key, value in arrays.items():
            np.testing.assert_array_equal(episode.arrays[key], value, err_msg=key)
    world.close()
    with pytest.raises(ValueError, match=r"was collected with noise_rad=0.02 \(now 0.0\)"):
        collect(replace(BRIEF, noise_rad=0.0), tmp_path, 3)


def test_a_store_of_other_versions_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line tells what differs, for another version of the task as for other physics."""
    recipe = replace(BRIEF, time_limit_s=0.2)
    with closing(InProcess()) as here:
        collect(recipe, tmp_path, 1, cluster=here)
        (episode,) = EpisodeStore.open(tmp_path).episodes()
        versions = episode.attributes.extra["recipe"]["versions"]
        assert versions == world_versions("hand_over_banana", {})
        other = replace(recipe, options={"start_spread": 1.0})
        with pytest.raises(ValueError, match=r"start_spread=0\.0 \(now 1\.0\)"):
            collect(other, tmp_path, 2, cluster=here)
        physics_digest.cache_clear()
        monkeypatch.setattr(success, "REST_SPEED", 0.02)
        with pytest.raises(ValueError, match=r"was collected with physics='\w+' \(now ") as error:
            collect(recipe, tmp_path, 2, cluster=here)
    physics_digest.cache_clear()
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_segments_are_stored_on_demand(tmp_path: Path) -> None:
    """They are those of the world, numbered as named; all else is stored as without them."""
    with closing(InProcess()) as here:
        for folder, recipe in (("plain", BRIEF), ("both", replace(BRIEF, segments=True))):
            collect(recipe, tmp_path / folder, 1, cluster=here)
        with pytest.raises(ValueError, match=r"was collected with segments=True \(now False\)"):
            collect(BRIEF, tmp_path / "both", 2, cluster=here)
    (plain,), (both,) = (
        EpisodeStore.open(tmp_path / folder).episodes() for folder in ("plain", "both")
    )
    added = {f"segmentation/{camera}" for camera in BRIEF.cameras or ()}
    assert set(both.arrays) - set(plain.arrays) == added
    assert all(np.array_equal(plain.arrays[key], both.arrays[key]) for key in plain.arrays)
    extra = dict(both.attributes.extra)
    names = extra.pop("segments")
    assert plain.attributes.extra["recipe"]["segments"] is False
    assert extra.pop("recipe") == {**plain.attributes.extra["recipe"], "segments": True}
    assert names[:FIRST_FOREGROUND_SEGMENT] == ["nothing", "table"]
    assert names[FIRST_FOREGROUND_SEGMENT] == "left"
    seen = both.arrays["segmentation/overhead"]
    assert seen.dtype == np.uint8
    assert seen.shape == both.arrays["depth/overhead"].shape
    assert {1, names.index("banana")} <= set(np.unique(seen).tolist())
    whole = Windows(EpisodeStore.open(tmp_path / "both"), segments=True)
    assert whole.segmented == BRIEF.cameras
    assert np.array_equal(whole[2]["segmentation/overhead"], seen[2])
    assert not Windows(EpisodeStore.open(tmp_path / "both")).segmented
    half = cache(EpisodeStore.open(tmp_path / "both"), tmp_path / "half", Resolution(8, 8))
    small = half.episodes()[0].arrays["segmentation/overhead"]
    assert np.array_equal(small, seen[:, 1::2, 1::2])
    part = part_of(both, 10, 40)
    check_episode(part, both.attributes.contract)
    first = both.arrays["frame/overhead"][10]
    assert np.array_equal(part["segmentation/overhead"][0], seen[first])
    with pytest.raises(ValueError, match=r"segments=true; the images of .*gym_aloha.* have none"):
        open_recipe_world(Recipe("gym_aloha_transfer_cube", segments=True))


@pytest.mark.slow
def test_failures_are_counted_and_kept_only_on_demand(tmp_path: Path) -> None:
    with closing(InProcess()) as here:
        kept = collect(replace(HOPELESS, keep_failures=True), tmp_path / "kept", 3, cluster=here)
    assert [(outcome.success, outcome.stage) for outcome in kept.outcomes] == [(False, 0)] * 3
    episodes = EpisodeStore.open(tmp_path / "kept").episodes()
    assert [episode.attributes.success for episode in episodes] == [False] * 3


@pytest.mark.slow
def test_an_expert_that_fails_again_and_again_ends_the_collection(tmp_path: Path) -> None:
    """The message has the counts and the last reason; a store without an episode is removed."""
    output = (
        "The expert of 'hand_over_banana' fails too often: 0 of {0} attempts succeeded. The last "
        "failure, of seed {1}: stage 0 after 0.1 s, the time limit. Correct the expert or the "
        "settings of the task, or store failures as well: keep_failures=true."
    )
    with closing(InProcess()) as here:
        for episodes, attempts in ((1, 14), (50, 30)):
            with pytest.raises(ValueError, match="fails too often") as caught:
                collect(HOPELESS, tmp_path / "runs" / "none", episodes, cluster=here)
            assert str(caught.value) == output.format(attempts, attempts - 1)
            assert list(tmp_path.iterdir()) == []


def test_attempts_are_those_up_to_the_last_one_needed(tmp_path: Path) -> None:
    """For any order of attempts and any interruption."""

    def attempts(path: Path, together: int) -> list[int]:
        store = EpisodeStore.create(path)
        while seeds := Collection(store, SMALL, 10).next_seeds(6):
            collection = Collection(store, SMALL, 10)
            for seed in list(reversed(seeds))[:together]:
                collection.add(Outcome(seed, success=seed % 3 > 0, stage=0, steps=1))
        return [outcome.seed for outcome in Collection(store, SMALL, 10).outcomes]

    assert (
        attempts(tmp_path / "a", 1)
        == attempts(tmp_path / "b", 2)
        == attempts(tmp_path / "c", 99)
        == list(range(10, 18))
    )


@pytest.mark.slow
def test_a_recording_is_an_episode_with_the_undisturbed_targets() -> None:
    world, expert = open_recipe_world(SMALL), make_any_expert(SMALL.task, varied=False)
    plain = record_episode(world, expert, 2)
    assert isinstance(world, TaskEnvironment)
    world.time_limit_s = 4.0  # By then something is held.
    disturbed, again = (record_episode(world, expert, 2, noise_rad=0.05) for _ in range(2))
    world.close()
    check_episode(plain.arrays, world.contract)
    assert plain.success
    assert plain.arrays["stage"][-1] >= 3
    assert (np.diff(plain.arrays["frame/overhead"]) >= 0).all()
    assert plain.arrays["T_base_camera/overhead"].shape == (4, 4)
    assert len(plain.arrays["T_base_camera/wrist_left"]) == len(plain.arrays["rgb/wrist_left"])
    np.testing.assert_allclose(
        plain.arrays["time/overhead"], np.arange(len(plain.arrays["rgb/overhead"])) * 0.2
    )
    np.testing.assert_array_equal(disturbed.arrays["action"], again.arrays["action"])
    # The first targets do not depend on the measured joints, so the disturbance must not show in
    # them, but in the joints.
    np.testing.assert_allclose(
        disturbed.arrays["action"][:40], plain.arrays["action"][:40], atol=1e-6
    )
    difference = disturbed.arrays["joints/position"][:40] - plain.arrays["joints/position"][:40]
    assert np.abs(difference).max() > 0.005


def test_the_disturbance_has_its_deviation_and_correlation_and_omits_grippers() -> None:
    revolute = np.array([joint.kind == "revolute" for joint in ALOHA.joints])
    rng = np.random.default_rng(0)
    share = np.random.default_rng(0).uniform()
    values = np.stack(
        list(islice(ornstein_uhlenbeck(rng, 0.1, 0.02, ALOHA.contract([], 50.0)), 20_000))
    )
    assert (values[:, ~revolute] == 0).all()
    np.testing.assert_allclose(values[:, revolute].std(axis=0), 0.1 * share, rtol=0.1)
    lagged = (values[1:, revolute] * values[:-1, revolute]).mean() / (
        values[:, revolute] ** 2
    ).mean()
    assert lagged == pytest.approx(np.exp(-0.02 / 0.25), abs=0.01)
    with pytest.raises(ValueError, match=r"noise_rad must be a number from 0 to 0.2 \(got 2.0\)"):
        next(ornstein_uhlenbeck(rng, 2.0, 0.02, ALOHA.contract([], 50.0)))


@pytest.mark.slow
def test_a_store_into_which_another_process_collects_is_refused(tmp_path: Path) -> None:
    """Otherwise both would record the same seeds, and overwrite each other's list of attempts."""
    with closing(InProcess()) as here:
        collect(BRIEF, tmp_path, 1, cluster=here)
        files = sorted(tmp_path.rglob("*"))
        with (
            shared(tmp_path),
            pytest.raises(ValueError, match=rf"Another process writes to {tmp_path}\. Wait until"),
        ):
            collect(BRIEF, tmp_path, 2, cluster=here)
        assert sorted(tmp_path.rglob("*")) == files
        assert collect(BRIEF, tmp_path, 2, cluster=here).kept == 2


@pytest.mark.parametrize(
    ("recipe", "episodes", "message"),
    [
        (replace(SMALL, task="juggle"), 1, "There is no expert for the task 'juggle'"),
        (replace(SMALL, cameras=("overhead", "ceiling")), 1, "There is no camera 'ceiling'"),
        (replace(SMALL, options={"table_height": 3.0}), 1, r"table_height must be .*got 3\.0"),
        (
            replace(SMALL, time_limit_s=-1.0),
            1,
            r"time_limit_s must be a number above 0 \(got -1.0\)",
        ),
        (replace(SMALL, control_hz=0.0), 1, r"control_hz must be a number above 0 \(got 0.0\)"),
        (replace(SMALL, control_hz=60.0), 1, "control_hz is 60.0; it must divide 500"),
        (replace(SMALL, frame_hz=0.0), 1, r"frame_hz must be a number above 0 \(got 0.0\)"),
        (replace(SMALL, image_size=0), 1, r"image_size must be an integer of at least 1 \(got 0\)"),
        (
            replace(SMALL, noise_rad=-1.0),
            1,
            r"noise_rad must be a number from 0 to 0.2 \(got -1.0\)",
        ),
        (SMALL, 0, r"episodes must be an integer of at least 1 \(got 0\)"),
    ],
)
def test_errors_appear_before_the_first_write(
    tmp_path: Path, recipe: Recipe, episodes: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        collect(recipe, tmp_path / "store", episodes)
    assert not (tmp_path / "store").exists()
