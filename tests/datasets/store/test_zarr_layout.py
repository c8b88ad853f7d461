"""Arrays on disk: plain zarr reads them, and their metadata is that of zarr."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray
from tests.datasets.conftest import MakeEpisode
from zarr.core.buffer import default_buffer_prototype

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.contract.contract import ActionDimension
from stringline.datasets.store.zarr_layout import DTYPES, ArrayEntry, array_metadata, array_name


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    """An empty store."""
    return EpisodeStore.create(tmp_path / "store")


def test_plain_zarr_reads_it(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Zarr alone finds the episode, its attributes and its arrays; numpy alone maps the chunk."""
    written = make_episode()
    name = store.write(written, EpisodeAttributes(contract, "reach", 3))
    group = zarr.open_group(store.path, mode="r")
    assert list(group.group_keys()) == [name]
    assert group[name].attrs["task"] == "reach"
    assert group[name].attrs["cameras"] == ["front", "wrist"]
    for key, array in written.items():
        stored = group[f"{name}/{array_name(key)}"]
        assert isinstance(stored, zarr.Array)
        np.testing.assert_array_equal(stored[...], array)
    chunk = np.memmap(
        store.path / name / "rgb.front" / "c/0/0/0/0",
        np.uint8,
        "r",
        shape=written["rgb/front"].shape,
    )
    np.testing.assert_array_equal(chunk, written["rgb/front"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_metadata_is_what_zarr_writes(dtype: str) -> None:
    """For every type, the hand-written metadata equals that of zarr."""
    array = zarr.create_array(
        {},
        shape=(5, 0, 3),
        chunks=(5, 1, 3),
        dtype=dtype,
        compressors=None,
        filters=None,
        fill_value=0,
    )
    written = array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    assert json.loads(array_metadata(ArrayEntry((5, 0, 3), dtype, 0))) == json.loads(written)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays_of.arrays(
            np.dtype(dtype), arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
        )
    )
)
def test_any_array_round_trips(
    store: EpisodeStore, make_episode: MakeEpisode, array: NDArray[Any]
) -> None:
    """Scalars, arrays of length 0 and every type survive beside the contract's keys."""
    bare = Contract("none", "table", 10.0, (), ("a",), (), (ActionDimension("a", "one", "joint"),))
    steps = {key: make_episode(steps=2)[key][..., :1] for key in ("joints/position", "action")}
    name = store.write(
        {"time": np.arange(2.0), **steps, "extra/any": array}, EpisodeAttributes(bare, "any", 0)
    )
    np.testing.assert_array_equal(store.episode(name).arrays["extra/any"], array)
    assert store.episode(name).arrays["extra/any"].shape == array.shape
    assert store.verify(name) == []
    read = zarr.open_array(store.path / name / "extra.any", mode="r")
    np.testing.assert_array_equal(read[...], array)


def test_big_endian_is_stored_little(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """The byte order of the source does not matter."""
    name = store.write(
        make_episode() | {"extra/big": np.arange(5, dtype=">u4")},
        EpisodeAttributes(contract, "reach", 3),
    )
    chunk = store.path / name / "extra.big" / "c" / "0"
    assert chunk.read_bytes() == np.arange(5, dtype="<u4").tobytes()
