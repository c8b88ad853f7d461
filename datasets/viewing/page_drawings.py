"""Drawings of pages: histograms as SVG, and thumbnails of images as data URLs."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from matplotlib.image import imsave
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.cameras.resampling import resample_colour, resample_depth
from stringline.datasets.store.episode import StoredEpisode

BINS = 40
_WIDTH = 240
_HEIGHT = 64


@dataclass(frozen=True)
class Histogram:
    """A histogram: `counts` (B,) in equal bins from `low` to `high`, and the mean value."""

    name: str
    unit: str
    counts: NDArray[np.int64]
    low: float
    high: float
    mean: float

    @classmethod
    def of(cls, name: str, unit: str, values: ArrayLike, bins: int = BINS) -> "Histogram":
        """Counts the finite values."""
        flat = np.asarray(values, np.float64).ravel()
        flat = flat[np.isfinite(flat)]
        if not len(flat):
            raise ValueError(f"{name}: there are no values to count.")
        low = float(flat.min())
        high = float(flat.max())
        # A width that float64 can divide; equal values fall into the middle.
        around = max(abs(low), abs(high), 1.0) * 1e-9
        inner, outer = (low, high) if high - low > around else (low - 0.5, high + 0.5)
        counts, _ = np.histogram(flat, bins, (inner, outer))
        return cls(name, unit, counts.astype(np.int64), low, high, float(flat.mean()))

    def svg(self) -> str:
        """Returns the drawing with the numbers as its title."""
        top = max(1, int(self.counts.max()))
        width = _WIDTH / len(self.counts)
        bars = "".join(
            f'<rect x="{place * width:.2f}" y="{_HEIGHT - _tall(count, top):.2f}" '
            f'width="{width - 0.8:.2f}" '
            f'height="{_tall(count, top):.2f}" fill="var(--accent)" fill-opacity="0.75"/>'
            for place, count in enumerate(self.counts.tolist())
            if count
        )
        line = f'<line x1="0" y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}" stroke="var(--line)"/>'
        title = (
            f"{self.name}: {self.counts.sum()} values from {self.low:.4g} to {self.high:.4g} "
            f"{self.unit}, mean {self.mean:.4g}"
        )
        return (
            f'<svg class="histogram" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT + 1}" '
            f'preserveAspectRatio="none">'
            f"<title>{escape(title)}</title>{bars}{line}</svg>"
        )


def _tall(count: int, top: int) -> float:
    """Returns the height of a bar, which stays visible for the rarest values."""
    return max(1.5, _HEIGHT * count / top) if count else 0.0


def histograms(
    names: Sequence[str], units: Sequence[str], rows: Sequence[NDArray[np.float32]]
) -> list[Histogram]:
    """Returns a histogram for each dimension of concatenated arrays (T, D)."""
    together = np.concatenate(rows)
    return [
        Histogram.of(name, unit, together[:, place])
        for place, (name, unit) in enumerate(zip(names, units, strict=True))
    ]


_LARGEST = 112
_BETWEEN = 2


def colour_strip(episode: StoredEpisode, camera: str) -> str:
    """Returns the first, the middle and the last image of a camera side by side."""
    images = episode.arrays[f"rgb/{camera}"]
    chosen = np.unique(np.linspace(0, len(images) - 1, 3).astype(int))
    size = _fitting(images.shape[1:3], _LARGEST)
    between = np.full((size[0], _BETWEEN, 3), 255, np.uint8)
    parts = [part for image in resample_colour(images[chosen], *size) for part in (image, between)]
    return jpeg_url(np.concatenate(parts[:-1], axis=1))


def colour_image(episode: StoredEpisode, camera: str, largest: int) -> str:
    """Returns the middle image of an episode with at most `largest` rows and columns."""
    return colour_frame(episode, camera, len(episode.arrays[f"rgb/{camera}"]) // 2, largest)


def colour_frame(episode: StoredEpisode, camera: str, frame: int, largest: int) -> str:
    """Returns one image of a camera with at most `largest` rows and columns."""
    images = episode.arrays[f"rgb/{camera}"]
    size = _fitting(images.shape[1:3], largest)
    return jpeg_url(resample_colour(images[frame][None], *size)[0])


def depth_image(episode: StoredEpisode, camera: str, largest: int) -> str:
    """Returns the middle depth image of an episode: near is light, far dark, no return red."""
    depth = episode.arrays[f"depth/{camera}"]
    middle = depth[len(depth) // 2][None]
    small = resample_depth(middle, *_fitting(middle.shape[1:], largest))[0].astype(np.float64)
    valid = small > 0
    low, high = np.percentile(small[valid], (2, 98)) if valid.any() else (0.0, 1.0)
    grey = 235 - 195 * np.clip((small - low) / max(high - low, 1e-9), 0, 1)
    image = np.repeat(grey[..., None], 3, axis=-1)
    image[~valid] = (179, 55, 47)
    return jpeg_url(image.astype(np.uint8))


def _fitting(size: tuple[int, ...], largest: int) -> tuple[int, int]:
    """Returns a size with the same aspect ratio and at most `largest` rows and columns."""
    scale = min(1.0, largest / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def jpeg_url(image: NDArray[Any]) -> str:
    """Returns an image (H, W, 3) uint8 as a data URL."""
    file = io.BytesIO()
    imsave(file, np.ascontiguousarray(image), format="jpeg", pil_kwargs={"quality": 82})
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
