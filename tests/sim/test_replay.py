"""`stringline-replay`: reasons of different states, and tasks of packages that need trust."""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.policies.demonstrations import CONTRACT, STEPS, episode
from tests.sim.in_process import InProcess

from stringline.datasets.extensions.trust import UntrustedPackageError
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.sim import replay
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.replay import recorded_options, recorded_world


@pytest.mark.slow
@pytest.mark.parametrize("noise_rad", [0.0, 0.02])
def test_the_disturbance_of_a_demonstration_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    noise_rad: float,
) -> None:
    recipe = Recipe(cameras=(), time_limit_s=0.2, keep_failures=True, noise_rad=noise_rad)
    with closing(InProcess()) as here:
        collect(recipe, tmp_path / "store", 1, cluster=here)
    monkeypatch.setattr(sys, "argv", ["stringline-replay", f"store={tmp_path / 'store'}"])
    replay.main()
    output = capsys.readouterr().out
    reason = (
        "The recorded actions are undisturbed, but disturbed ones were executed (noise_rad=0.02), "
        "so the states differ.\n"
    )
    assert output.endswith(reason) == (noise_rad > 0)
    assert "replayed 10 steps" in output


def stored(folder: Path, task: str) -> StoredEpisode:
    """Writes an episode that describes its world."""
    store = EpisodeStore.create(folder / "store")
    recipe = {"task": task, "cameras": [], "image_size": 32}
    attributes = EpisodeAttributes(CONTRACT, "recorded", 0, True, extra={"recipe": recipe})
    arrays = {**episode(0), "sim/state": np.zeros((STEPS, 3))}
    return store.episode(store.write(arrays, attributes))


def test_an_episode_is_repeated_by_the_rule_of_its_recording(tmp_path: Path) -> None:
    recipe = recorded_world(stored(tmp_path, "kuka_pick"))
    rule = {"start_spread": 0.5, "strict": True}
    recipe = replace(recipe, versions=rule | {"mujoco": "3"}, options={"table_height": 0.1})
    assert recorded_options(recipe) == rule | {"table_height": 0.1}


@pytest.mark.parametrize("task", ["their_tasks:Stack", "remote:their_tasks:Stack"])
def test_the_task_of_an_episode_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STRINGLINE_TRUST", raising=False)
    found = stored(tmp_path, task)
    with pytest.raises(UntrustedPackageError, match=r"Episode recorded.* needs their_tasks:Stack"):
        recorded_world(found)
    monkeypatch.setenv("STRINGLINE_TRUST", "their_tasks")
    assert recorded_world(found).task == task
