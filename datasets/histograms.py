"""Histograms as small SVG drawings that take the page's colours, light or dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 40
_WIDTH, _HEIGHT = 240, 64


@dataclass(frozen=True)
class Histogram:
    """How often values occur.

    Attributes:
        name: What they are.
        unit: Of the values.
        counts: (B,) how many are in each of equal bins from `low` to `high`.
        low: Smallest value.
        high: Largest value.
        mean: Their mean.
    """

    name: str
    unit: str
    counts: NDArray[np.int64]
    low: float
    high: float
    mean: float

    @classmethod
    def of(cls, name: str, unit: str, values: ArrayLike, bins: int = BINS) -> "Histogram":
        """Counts values; those that are not finite are left out.

        Raises:
            ValueError: There is none.
        """
        flat = np.asarray(values, np.float64).ravel()
        flat = flat[np.isfinite(flat)]
        if not len(flat):
            raise ValueError(f"{name}: there are no values to count.")
        low, high = float(flat.min()), float(flat.max())
        # A width that float64 can divide; equal values all fall into the middle.
        around = max(abs(low), abs(high), 1.0) * 1e-9
        inner, outer = (low, high) if high - low > around else (low - 0.5, high + 0.5)
        counts, _ = np.histogram(flat, bins, (inner, outer))
        return cls(name, unit, counts.astype(np.int64), low, high, float(flat.mean()))

    def svg(self) -> str:
        """Returns the drawing; its title says the numbers."""
        top, width = max(1, int(self.counts.max())), _WIDTH / len(self.counts)
        bars = "".join(
            f'<rect x="{place * width:.2f}" y="{_HEIGHT - _tall(count, top):.2f}" width="{width - 0.8:.2f}" '
            f'height="{_tall(count, top):.2f}" fill="var(--accent)" fill-opacity="0.75"/>'
            for place, count in enumerate(self.counts.tolist())
            if count
        )
        line = f'<line x1="0" y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}" stroke="var(--line)"/>'
        title = (
            f"{self.name}: {self.counts.sum()} values from {self.low:.4g} to {self.high:.4g} {self.unit}, mean {self.mean:.4g}"
        )
        return (
            f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT + 1}" preserveAspectRatio="none">'
            f"<title>{escape(title)}</title>{bars}{line}</svg>"
        )


def _tall(count: int, top: int) -> float:
    """Returns the height of a bar; the rarest value is still seen."""
    return max(1.5, _HEIGHT * count / top) if count else 0.0


def histograms(names: Sequence[str], units: Sequence[str], rows: Sequence[NDArray[np.float32]]) -> list[Histogram]:
    """Returns a histogram for each dimension of some (T, D) arrays together."""
    together = np.concatenate(rows)
    return [Histogram.of(name, unit, together[:, place]) for place, (name, unit) in enumerate(zip(names, units, strict=True))]
