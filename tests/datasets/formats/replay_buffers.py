"""Replay buffers in the layout of diffusion_policy, written by zarr for the tests of readers."""

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import ZipStore

LENGTHS = (5, 8, 4)


def replay_buffer(
    path: Path,
    series: dict[str, NDArray[Any]],
    codecs: dict[str, Any] | None = None,
    chunk: int = 3,
) -> Path:
    """Writes a buffer like diffusion_policy: zarr format 2, Blosc, a few frames in each chunk."""
    store: Any = ZipStore(path, mode="w") if path.suffix == ".zip" else path
    root = zarr.open_group(store, mode="w", zarr_format=2)
    default = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.NOSHUFFLE)
    for key, values in series.items():
        codec = (codecs or {}).get(key, default)
        rows = 1 if key in (codecs or {}) else chunk
        array = root.create_array(
            f"data/{key}",
            shape=values.shape,
            dtype=values.dtype,
            chunks=(rows, *values.shape[1:]),
            compressors=codec,
        )
        array[:] = values
    ends = root.create_array(
        "meta/episode_ends", shape=(len(LENGTHS),), dtype=np.int64, compressors=None
    )
    ends[:] = np.cumsum(LENGTHS)
    if isinstance(store, ZipStore):
        store.close()
    return path
