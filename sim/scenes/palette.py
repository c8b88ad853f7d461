"""Named colours of assets, and the textures that multiply them."""

import colorsys
from collections.abc import Mapping, Sequence

import numpy as np

from stringline.sim.looks import families, object_patterns
from stringline.sim.looks.families import Family
from stringline.sim.scenes.solids import Colour

WOODEN = "wooden"
METAL = "grey"
_Ranges = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
# Ranges of hue, saturation and value, far enough from each other for the names to hold.
COLOURS: Mapping[str, _Ranges] = {
    "red": ((-0.02, 0.015), (0.75, 0.95), (0.6, 0.85)),
    "orange": ((0.06, 0.085), (0.8, 1.0), (0.85, 1.0)),
    "yellow": ((0.13, 0.16), (0.75, 0.95), (0.85, 1.0)),
    "green": ((0.28, 0.4), (0.5, 0.9), (0.35, 0.65)),
    "blue": ((0.57, 0.64), (0.6, 0.95), (0.45, 0.85)),
    "purple": ((0.74, 0.8), (0.45, 0.8), (0.4, 0.7)),
    "pink": ((0.9, 0.95), (0.3, 0.5), (0.85, 1.0)),
    "brown": ((0.04, 0.08), (0.5, 0.75), (0.25, 0.42)),
    "white": ((0.0, 1.0), (0.0, 0.05), (0.9, 1.0)),
    "grey": ((0.0, 1.0), (0.0, 0.05), (0.4, 0.6)),
    "black": ((0.0, 1.0), (0.0, 0.1), (0.06, 0.14)),
    WOODEN: ((0.07, 0.1), (0.45, 0.65), (0.5, 0.85)),
}
BRIGHT = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white")
FABRIC = (*BRIGHT, "grey", "brown", "black")
TEXTURES: Mapping[str, Family] = {
    "wood": families.WOOD,
    "wicker": families.WICKER,
    "glaze": families.GLAZE,
    "plastic": families.PLASTIC,
    "skin": families.FRUIT,
    "cloth": Family("cloth", object_patterns.shaded(0.3, 0.5, lowest=3.0), (0.0, 0.1)),
}


def draw_colour(rng: np.random.Generator, names: Sequence[str]) -> tuple[str, Colour]:
    """Draws one of some named colours; returns its name and red, green and blue, 0 to 1."""
    name = names[int(rng.integers(len(names)))]
    hue, saturation, value = (rng.uniform(*limits) for limits in COLOURS[name])
    return name, colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
