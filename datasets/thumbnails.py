"""Small pictures of an episode, as the data addresses that an HTML page shows without a file beside it."""

import base64
import io
from typing import Any

import numpy as np
from matplotlib.image import imsave
from numpy.typing import NDArray

from stringline.datasets.episode import StoredEpisode
from stringline.datasets.resampling import resample_colour, resample_depth

_LARGEST = 112
_BETWEEN = 2


def colour_strip(episode: StoredEpisode, camera: str) -> str:
    """Returns the first, the middle and the last picture of a camera side by side."""
    pictures = episode.arrays[f"rgb/{camera}"]
    chosen = np.unique(np.linspace(0, len(pictures) - 1, 3).astype(int))
    size = _fitting(pictures.shape[1:3], _LARGEST)
    between = np.full((size[0], _BETWEEN, 3), 255, np.uint8)
    parts = [part for picture in resample_colour(pictures[chosen], *size) for part in (picture, between)]
    return _jpeg(np.concatenate(parts[:-1], axis=1))


def colour_picture(episode: StoredEpisode, camera: str, largest: int) -> str:
    """Returns the picture in the middle of an episode, of so many rows and columns at most."""
    pictures = episode.arrays[f"rgb/{camera}"]
    return _jpeg(resample_colour(pictures[len(pictures) // 2][None], *_fitting(pictures.shape[1:3], largest))[0])


def depth_picture(episode: StoredEpisode, camera: str, largest: int) -> str:
    """Returns the depth in the middle of an episode: near is light, far is dark, no return is red."""
    depth = episode.arrays[f"depth/{camera}"]
    middle = depth[len(depth) // 2][None]
    small = resample_depth(middle, *_fitting(middle.shape[1:], largest))[0].astype(np.float64)
    valid = small > 0
    low, high = np.percentile(small[valid], (2, 98)) if valid.any() else (0.0, 1.0)
    grey = 235 - 195 * np.clip((small - low) / max(high - low, 1e-9), 0, 1)
    picture = np.repeat(grey[..., None], 3, axis=-1)
    picture[~valid] = (179, 55, 47)
    return _jpeg(picture.astype(np.uint8))


def _fitting(size: tuple[int, ...], largest: int) -> tuple[int, int]:
    """Returns a size with the same proportions that does not exceed the largest."""
    scale = min(1.0, largest / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _jpeg(picture: NDArray[Any]) -> str:
    file = io.BytesIO()
    imsave(file, np.ascontiguousarray(picture), format="jpeg", pil_kwargs={"quality": 82})
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
