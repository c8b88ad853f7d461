"""The classes of parametric assets."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stringline.datasets.contract.argument_checks import WHOLE, unknown_name
from stringline.sim.scenes import cases, household, seating, tableware
from stringline.sim.scenes.assets import Asset, Sketch, Stand

VARIANTS = 200
"""Number of variants of each class; asset n of a class has the same form in every room."""
REFERENCES = 25  # Variants whose median size is the usual one of a class.
SMALLER = 0.88  # Length of a small one against the usual one.
LARGER = 1.14


class AssetClass(NamedTuple):
    """A class: the function that draws its forms, and where they stand."""

    draw: Callable[[Sketch], None]
    stand: Stand


FLOOR: Mapping[str, Callable[[Sketch], None]] = {
    "chair": seating.chair,
    "office chair": seating.office_chair,
    "stool": seating.stool,
    "armchair": seating.armchair,
    "sofa": seating.sofa,
    "bench": seating.bench,
    "ottoman": seating.ottoman,
    "bed": seating.bed,
    "rug": seating.rug,
    "dining table": cases.dining_table,
    "coffee table": cases.coffee_table,
    "side table": cases.side_table,
    "desk": cases.desk,
    "bookshelf": cases.bookshelf,
    "cabinet": cases.cabinet,
    "chest": cases.dresser,
    "television": cases.tv_stand,
    "floor lamp": cases.floor_lamp,
    "basket": household.basket,
    "ball": household.ball,
    "plant": household.plant,
}
TOP: Mapping[str, Callable[[Sketch], None]] = {
    "cushion": seating.cushion,
    "table lamp": cases.table_lamp,
    "desk lamp": cases.desk_lamp,
    "cup": tableware.cup,
    "mug": tableware.mug,
    "bowl": tableware.bowl,
    "plate": tableware.plate,
    "glass": tableware.glass,
    "bottle": tableware.bottle,
    "jar": tableware.jar,
    "can": tableware.can,
    "vase": tableware.vase,
    "teapot": tableware.teapot,
    "pan": tableware.pan,
    "pot": tableware.pot,
    "tray": tableware.tray,
    "apple": tableware.apple,
    "orange": tableware.orange,
    "pear": tableware.pear,
    "banana": tableware.banana,
    "book": household.book,
    "laptop": household.laptop,
    "monitor": household.monitor,
    "keyboard": household.keyboard,
    "phone": household.phone,
    "speaker": household.speaker,
    "box": household.box,
    "block": household.block,
    "car": household.car,
    "candle": household.candle,
    "alarm clock": household.alarm_clock,
    "small plant": household.small_plant,
}
WALL: Mapping[str, Callable[[Sketch], None]] = {
    "clock": household.clock,
    "picture": household.picture,
    "mirror": household.mirror,
    "wall shelf": cases.wall_shelf,
}
CLASSES: Mapping[str, AssetClass] = {
    **{name: AssetClass(draw, "floor") for name, draw in FLOOR.items()},
    **{name: AssetClass(draw, "top") for name, draw in TOP.items()},
    **{name: AssetClass(draw, "wall") for name, draw in WALL.items()},
}


@lru_cache(maxsize=16384)
def make_asset(name: str, variant: int) -> Asset:
    """Returns a variant of a class; the same arguments give the same asset.

    Raises:
        ValueError: There is no such class, or the variant is not a whole number from 0 on.
    """
    if name not in CLASSES:
        raise unknown_name("class of assets", name, CLASSES)
    WHOLE.check(variant=variant)
    sketch = Sketch(name, variant)
    CLASSES[name].draw(sketch)
    return sketch.finish(CLASSES[name].stand)


def size_word(asset: Asset) -> str:
    """Returns "small" or "large" for an asset against its class, and "" for a usual one."""
    name = asset.identity.rpartition("-")[0].replace("_", " ")
    if name not in CLASSES:
        return ""
    ratio = float(np.linalg.norm(asset.size)) / usual_length(name, asset.name)
    return "small" if ratio < SMALLER else "large" if ratio > LARGER else ""


@lru_cache(maxsize=256)
def usual_length(name: str, called: str = "") -> float:
    """Returns the median diagonal of the boxes of a class, of those with one name if given."""
    variants = (make_asset(name, number) for number in range(4 * REFERENCES))
    same = [np.linalg.norm(asset.size) for asset in variants if called in ("", asset.name)]
    return float(np.median(same[:REFERENCES]))
