"""Streamed statistics equal those that numpy computes over everything at once."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.datasets.conftest import MakeEpisode

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.loading.statistics import (
    BINS,
    GRIPPER_POSITIONS,
    QUANTILES,
    Statistics,
    statistics_of,
)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(any),
    st.integers(0, 100),
    st.floats(-1e4, 1e4),
)
def test_parts_equal_the_whole(lengths: list[int], seed: int, offset: float) -> None:
    """For any partition of the rows, with a large offset, a skewed and a constant dimension."""
    rng = np.random.default_rng(seed)
    parts = [
        np.stack(
            [rng.normal(offset, 1.0, n), rng.exponential(3.0, n), np.full(n, offset)], axis=1
        ).astype(np.float32)
        for n in lengths
    ]
    whole = np.concatenate(parts).astype(np.float64)
    found = statistics_of(lambda: iter(parts))
    assert found.count == len(whole)
    np.testing.assert_array_equal(found.min, whole.min(0))
    np.testing.assert_array_equal(found.max, whole.max(0))
    np.testing.assert_allclose(found.mean, whole.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.std, whole.std(0), rtol=1e-6, atol=1e-9)
    lower, upper = (
        np.quantile(whole, QUANTILES, axis=0, method=method) for method in ("lower", "higher")
    )
    bin_width = (whole.max(0) - whole.min(0)) / BINS + 1e-9
    assert ((found.quantiles >= lower - bin_width) & (found.quantiles <= upper + bin_width)).all()


def test_statistics_of_episodes(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Keys that an episode lacks are omitted; JSON keeps every digit."""
    store = EpisodeStore.create(tmp_path / "store")
    episodes = [make_episode(steps=steps, seed=steps) for steps in (5, 30)]
    episodes[1]["joints/velocity"] = episodes[1]["joints/position"] * 2
    for seed, arrays in enumerate(episodes):
        store.write(arrays, EpisodeAttributes(contract, "reach", seed))
    found = Statistics.of_episodes(store.episodes())
    assert set(found) == {"action", "joints/position", GRIPPER_POSITIONS}
    places = np.concatenate([arrays["T_base_gripper/one"][:, :3, 3] for arrays in episodes])
    np.testing.assert_array_equal(found[GRIPPER_POSITIONS].min, places.min(0))
    np.testing.assert_allclose(
        found["action"].mean,
        np.concatenate([a["action"] for a in episodes]).mean(0, np.float64),
        rtol=1e-7,
    )
    again = Statistics.from_dict(json.loads(json.dumps(found.to_dict())))
    for key in found:
        for name in ("min", "max", "mean", "std", "quantiles"):
            np.testing.assert_array_equal(getattr(again[key], name), getattr(found[key], name))
    only = Statistics.of_episodes(store.episodes()[:1])
    np.testing.assert_array_equal(only["action"].max, episodes[0]["action"].max(0))


def test_mistakes() -> None:
    """Errors name missing data, unknown keys and invalid JSON."""
    with pytest.raises(ValueError, match="no rows"):
        statistics_of(lambda: iter([np.zeros((0, 2))]))
    with pytest.raises(KeyError, match="no key with statistics 'action'"):
        Statistics({})["action"]
    with pytest.raises(ValueError, match="statistics are invalid"):
        Statistics.from_dict({"action": {"count": 1}})
