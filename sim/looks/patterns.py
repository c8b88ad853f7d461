"""Procedural textures of tables, floors, walls and objects.

Each pattern of a surface takes the side of the image in pixels and a random stream, and returns
colours (n, n, 3), 0 to 1, whose edges fit together, so that a surface can repeat it. The fibres of
wood run along the rows.

Patterns of objects are light and multiply the colours of an object. So an object keeps the colour
that its instruction names, and shifts of colour act as before. Each is one face of a cube around a
shape, (n, n, 3), 0 to 1.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Field = NDArray[np.float64]
"""Values (n, n) or colours (n, n, 3), 0 to 1."""
Pattern = Callable[[int, np.random.Generator], Field]

# Real surfaces are nowhere of one colour: standard deviation of each channel of each pixel, and
# largest change of red and blue against each other from place to place.
GRAIN = 0.028
WARMTH = 0.05


def fractal(
    side: int,
    rng: np.random.Generator,
    *,
    decay: float = 1.5,
    stretch: float = 1.0,
    lowest: float = 1.0,
) -> Field:
    """Returns periodic noise (n, n), 0 to 1, with the spectrum f^-decay above `lowest` per image.

    `stretch` is the ratio of its lengths along the columns and along the rows.
    """
    rows = np.fft.fftfreq(side, 1 / side)[:, None]
    radius = np.hypot(rows, stretch * np.fft.rfftfreq(side, 1 / side))
    amplitude = np.where(radius >= lowest, np.maximum(radius, 1e-9) ** -decay, 0.0)
    phase = rng.standard_normal((2, *radius.shape))
    field = np.fft.irfft2(amplitude * (phase[0] + 1j * phase[1]), s=(side, side))
    noise: Field = 0.5 + 0.5 * np.tanh(0.8 * (field - field.mean()) / field.std())
    return noise


def blend(low: ArrayLike, high: ArrayLike, share: Field) -> Field:
    """Returns colours (n, n, 3) between two colours (3,) or images, by a share (n, n)."""
    bottom = np.asarray(low, dtype=np.float64)
    return bottom + (np.asarray(high, dtype=np.float64) - bottom) * share[..., None]


def finished(colours: Field, rng: np.random.Generator) -> Field:
    """Returns an image (n, n, 3) with the grain and the warm and cool places of a real surface."""
    warmth = WARMTH * (2 * fractal(len(colours), rng, decay=1.0, lowest=2.0) - 1)
    warm = colours * (1 + warmth[..., None] * (1.0, 0.0, -1.0))
    return np.clip(warm + GRAIN * rng.standard_normal(colours.shape), 0.0, 1.0)


def places(side: int) -> tuple[Field, Field]:
    """Returns the row and the column of each pixel (n, n), 0 to 1."""
    row, column = np.mgrid[0:side, 0:side] / side
    return row, column


def wood(dark: ArrayLike, light: ArrayLike, planks: int) -> Pattern:
    """Returns boards with growth rings and fibres, of random shades, and the joints between."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, _ = places(side)
        plank = np.floor(row * planks).astype(int)
        slow = fractal(side, rng, decay=2.6, stretch=7.0)
        fibre = fractal(side, rng, decay=0.7, stretch=24.0, lowest=4.0)
        # Each board is cut elsewhere from the tree: its rings and fibres are moved along.
        moved = rng.integers(side, size=planks)
        columns = (np.arange(side) + moved[plank[:, :1]]) % side
        rows = np.arange(side)[:, None]
        rings = 0.5 + 0.5 * np.sin(2 * np.pi * (7 * slow + 5 * row))[rows, columns]
        shade = 0.5 * rings**1.5 + 0.5 * fibre[rows, columns]
        image = (
            blend(dark, light, shade) * (1 + 0.11 * rng.standard_normal(planks))[plank][..., None]
        )
        joint = np.abs(row * planks - np.round(row * planks)) * side / planks < 1.0
        return finished(np.where(joint[..., None], 0.45 * image, image), rng)

    return draw


def marble(ground: ArrayLike, veins: ArrayLike) -> Pattern:
    """Returns stone with clouds and thin veins."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        cloud = fractal(side, rng, decay=1.9)
        bent = fractal(side, rng, decay=2.1)
        fine = fractal(side, rng, decay=1.6, lowest=3.0)
        vein = np.exp(-(((bent - 0.5) / 0.035) ** 2)) + 0.5 * np.exp(-(((fine - 0.5) / 0.03) ** 2))
        image = blend(0.86 * np.asarray(ground), ground, cloud)
        return finished(blend(image, veins, np.clip(0.8 * vein, 0, 1) * cloud), rng)

    return draw


def speckled(ground: ArrayLike, chips: ArrayLike) -> Pattern:
    """Returns a ground with chips of several colours (k, 3), as terrazzo or granite."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        image = blend(0.9 * np.asarray(ground), ground, fractal(side, rng, decay=1.2))
        for chip in np.asarray(chips, dtype=np.float64):
            blob = fractal(side, rng, decay=1.0, lowest=12.0) > 0.8
            image[blob] = chip
        return finished(image, rng)

    return draw


def mottled(low: ArrayLike, high: ArrayLike, decay: float = 1.4) -> Pattern:
    """Returns clouds between two colours, as plaster, concrete or worn paint."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        fine = fractal(side, rng, decay=0.4, lowest=8.0)
        share = 0.75 * fractal(side, rng, decay=decay) + 0.25 * fine
        return finished(blend(low, high, share), rng)

    return draw


def cloth(colours: ArrayLike, threads: int, stripes: ArrayLike) -> Pattern:
    """Returns a plain weave: threads in both directions, of colours (k, 3) in coloured stripes.

    `stripes` (m,) are the colours' numbers of equally wide stripes in both directions.
    """
    palette = np.asarray(colours, dtype=np.float64)
    order = np.asarray(stripes, dtype=int)

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, column = places(side)
        warp, weft = np.floor(row * threads).astype(int), np.floor(column * threads).astype(int)
        above = (warp + weft) % 2 == 0
        striped = [palette[order[(at * len(order) // threads) % len(order)]] for at in (warp, weft)]
        image = np.where(above[..., None], *striped)
        across = np.where(above, row, column) * threads % 1
        relief = 0.72 + 0.28 * np.sin(np.pi * across)
        uneven = 0.85 + 0.3 * fractal(side, rng, decay=0.8, lowest=2.0)
        return finished(image * (relief * uneven)[..., None], rng)

    return draw


def tiles(face: ArrayLike, joint: ArrayLike, count: int, *, shift: float = 0.0) -> Pattern:
    """Returns `count` tiles by `count`, or courses of bricks with a `shift` of every other one."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, column = places(side)
        wide = count // 2 if shift else count
        course = np.floor(row * count).astype(int)
        along = column * wide + shift * (course % 2)
        number = np.floor(along).astype(int) % wide
        shade = 1 + 0.09 * rng.standard_normal((count, wide))[course, number]
        image = blend(0.85 * np.asarray(face), face, fractal(side, rng)) * shade[..., None]
        edge = np.minimum(
            np.abs(row * count - np.round(row * count)) / count,
            np.abs(along - np.round(along)) / wide,
        )
        return finished(np.where((edge * side < 1.6)[..., None], joint, image), rng)

    return draw


def checks(first: ArrayLike, second: ArrayLike, count: int) -> Pattern:
    """Returns a chequered oilcloth with `count` squares along each side."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        row, column = places(side)
        even = (np.floor(row * count) + np.floor(column * count)) % 2 == 0
        image = np.where(even[..., None], first, second)
        return finished(image * (0.85 + 0.2 * fractal(side, rng, decay=1.0))[..., None], rng)

    return draw


def brushed(low: ArrayLike, high: ArrayLike) -> Pattern:
    """Returns brushed metal: fine scratches along the columns."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        fine = fractal(side, rng, decay=0.35, stretch=40.0, lowest=2.0)
        return finished(blend(low, high, 0.6 * fine + 0.4 * fractal(side, rng, decay=2.0)), rng)

    return draw


def stripes(first: ArrayLike, second: ArrayLike, count: int) -> Pattern:
    """Returns upright stripes of two colours, as wallpaper or panelling."""

    def draw(side: int, rng: np.random.Generator) -> Field:
        _, column = places(side)
        share = np.clip(0.5 + 3 * np.sin(2 * np.pi * count * column), 0, 1)
        image = blend(first, second, share)
        return finished(image * (0.9 + 0.15 * fractal(side, rng))[..., None], rng)

    return draw


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
