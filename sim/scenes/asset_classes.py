"""The classes of parametric assets."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stringline.datasets.contract.argument_checks import WHOLE, unknown_name
from stringline.sim.scenes import furniture, household
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
    "chair": furniture.chair,
    "office chair": furniture.office_chair,
    "stool": furniture.stool,
    "armchair": furniture.armchair,
    "sofa": furniture.sofa,
    "bench": furniture.bench,
    "ottoman": furniture.ottoman,
    "bed": furniture.bed,
    "rug": furniture.rug,
    "dining table": furniture.dining_table,
    "coffee table": furniture.coffee_table,
    "side table": furniture.side_table,
    "desk": furniture.desk,
    "bookshelf": furniture.bookshelf,
    "cabinet": furniture.cabinet,
    "chest": furniture.dresser,
    "television": furniture.tv_stand,
    "floor lamp": furniture.floor_lamp,
    "basket": household.basket,
    "ball": household.ball,
    "plant": household.plant,
}
TOP: Mapping[str, Callable[[Sketch], None]] = {
    "cushion": furniture.cushion,
    "table lamp": furniture.table_lamp,
    "desk lamp": furniture.desk_lamp,
    "cup": household.cup,
    "mug": household.mug,
    "bowl": household.bowl,
    "plate": household.plate,
    "glass": household.glass,
    "bottle": household.bottle,
    "jar": household.jar,
    "can": household.can,
    "vase": household.vase,
    "teapot": household.teapot,
    "pan": household.pan,
    "pot": household.pot,
    "tray": household.tray,
    "apple": household.apple,
    "orange": household.orange,
    "pear": household.pear,
    "banana": household.banana,
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
    "wall shelf": furniture.wall_shelf,
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
