"""A recorded episode names its task, which is imported only from a trusted package."""

from pathlib import Path

import numpy as np
import pytest
from tests.policies.demonstrations import CONTRACT, STEPS, episode

from stringline.datasets.extensions.trust import UntrustedPackageError
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.replay import recorded_world


def stored(folder: Path, task: str) -> StoredEpisode:
    """Writes an episode that describes its world."""
    store = EpisodeStore.create(folder / "store")
    recipe = {"task": task, "cameras": [], "image_size": 32}
    attributes = EpisodeAttributes(CONTRACT, "recorded", 0, True, extra={"recipe": recipe})
    arrays = {**episode(0), "sim/state": np.zeros((STEPS, 3))}
    return store.episode(store.write(arrays, attributes))


def test_the_task_of_an_episode_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STRINGLINE_TRUST", raising=False)
    found = stored(tmp_path, "their_tasks:Stack")
    with pytest.raises(UntrustedPackageError, match=r"Episode recorded.* needs their_tasks:Stack"):
        recorded_world(found)
    monkeypatch.setenv("STRINGLINE_TRUST", "their_tasks")
    assert recorded_world(found).task == "their_tasks:Stack"
