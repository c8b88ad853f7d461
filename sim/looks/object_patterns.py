"""Procedural textures of objects: light patterns that multiply the colours of an object.

So an object keeps the colour that its instruction names, and shifts of colour act as before. Each
pattern is one face of a cube around a shape, (n, n, 3), 0 to 1.
"""

import numpy as np
from numpy.typing import ArrayLike

from stringline.sim.looks.patterns import Field, Pattern, blend, finished, fractal, places

WHITE = (1.0, 1.0, 1.0)
INK = (0.13, 0.13, 0.16)


def shaded(depth: float, decay: float, stretch: float = 1.0, lowest: float = 1.0) -> Pattern:
    """Returns noise between white and white less `depth`, as glaze, plastic or painted wood."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        field = fractal(side, rng, decay=decay, stretch=stretch, lowest=lowest)
        return finished(blend((1 - depth,) * 3, WHITE, field), rng)

    return draw


def painted_wood(side: int, rng: np.random.Generator) -> Field:
    """Returns stained wood, whose fibres show through."""
    row, _ = places(side)
    slow = fractal(side, rng, decay=2.4, stretch=6.0)
    rings = 0.5 + 0.5 * np.sin(2 * np.pi * (4 * slow + 3 * row))
    fibre = fractal(side, rng, decay=0.8, stretch=16.0, lowest=3.0)
    return finished(blend((0.62, 0.56, 0.5), WHITE, 0.55 * rings + 0.45 * fibre), rng)


def peel(side: int, rng: np.random.Generator) -> Field:
    """Returns a ripe skin: long pale and green streaks, and brown specks."""
    streaks = fractal(side, rng, decay=1.6, stretch=5.0)
    image = blend((0.86, 0.95, 0.62), WHITE, streaks)
    specks = fractal(side, rng, decay=0.9, lowest=7.0)
    return finished(blend(image, (0.42, 0.27, 0.12), np.clip(8 * (specks - 0.84), 0, 1)), rng)


def skin(side: int, rng: np.random.Generator) -> Field:
    """Returns the skin of an apple or a pear: streaks towards the stalk, and pale dots."""
    streaks = fractal(side, rng, decay=1.2, stretch=0.15)
    image = blend((0.66, 0.7, 0.6), WHITE, streaks)
    dots = fractal(side, rng, decay=0.3, lowest=10.0) > 0.9
    image[dots] = (1.0, 1.0, 0.8)
    return finished(image, rng)


def glaze(side: int, rng: np.random.Generator) -> Field:
    """Returns glazed stoneware: soft clouds and fine iron specks."""
    image = blend((0.8, 0.82, 0.86), WHITE, fractal(side, rng, decay=1.8))
    image[fractal(side, rng, decay=0.5, lowest=6.0) > 0.965] = (0.45, 0.36, 0.3)
    return finished(image, rng)


def woven(side: int, rng: np.random.Generator) -> Field:
    """Returns wickerwork."""
    row, column = places(side)
    over = np.sin(2 * np.pi * 4 * column + np.pi * (np.floor(row * 12) % 2))
    strand = np.sin(np.pi * (row * 12 % 1))
    relief = 0.5 + 0.25 * over + 0.25 * strand
    return finished(blend((0.5, 0.45, 0.4), WHITE, relief * (0.8 + 0.4 * fractal(side, rng))), rng)


def label(accent: ArrayLike) -> Pattern:
    """Returns a printed packet: a title, a picture, lines of small print and a bar code."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, column = places(side)
        image = blend((0.9, 0.9, 0.9), WHITE, fractal(side, rng))
        title = (row > 0.1) & (row < 0.3)
        image[title] = accent
        letters = (np.abs(row - 0.2) < 0.06) & (column > 0.12) & (column < 0.88)
        image[letters & (rng.random(11)[np.floor(column * 11).astype(int)] > 0.2)] = WHITE
        picture = np.hypot(row - 0.53, column - 0.34) < 0.17
        image[picture] = 0.6 * np.asarray(accent) + 0.4
        image[np.hypot(row - 0.5, column - 0.38) < 0.08] = (1.0, 0.85, 0.3)
        words = rng.random((24, 24))[
            np.floor(row * 24).astype(int), np.floor(column * 24).astype(int)
        ]
        print_ = (column > 0.58) & (column < 0.92) & (row > 0.38) & (row < 0.68)
        image[print_ & (row * 24 % 1 < 0.5) & (words > 0.25)] = INK
        bars = (row > 0.76) & (row < 0.93) & (column > 0.5) & (column < 0.92)
        image[bars & (rng.random(48)[np.floor(column * 48).astype(int)] > 0.5)] = INK
        return finished(image, rng)

    return draw


def dots(count: int, ink: float) -> Pattern:
    """Returns polka dots, `count` by `count`."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, column = places(side)
        away = np.hypot(row * count % 1 - 0.5, column * count % 1 - 0.5)
        image = blend((0.92, 0.92, 0.92), WHITE, fractal(side, rng))
        return finished(np.where((away < 0.3)[..., None], ink * image, image), rng)

    return draw


def bands(count: int, ink: float) -> Pattern:
    """Returns `count` dark bands."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, _ = places(side)
        image = blend((0.9, 0.9, 0.92), WHITE, fractal(side, rng))
        return finished(np.where((row * count % 1 < 0.4)[..., None], ink * image, image), rng)

    return draw


def squares(count: int, ink: float) -> Pattern:
    """Returns dark and light squares."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, column = places(side)
        even = (np.floor(row * count) + np.floor(column * count)) % 2 == 0
        image = blend((0.9, 0.9, 0.9), WHITE, fractal(side, rng))
        return finished(np.where(even[..., None], ink * image, image), rng)

    return draw
