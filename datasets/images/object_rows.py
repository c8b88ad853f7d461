"""Labelled objects as rows of arrays; NaN where unknown."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.images.boxes import Box3d
from stringline.datasets.images.labelled_image import LabelledObject

COLUMNS = ("name", "asset", "box2d", "box3d", "visibility", "truncation")


def rows_of_objects(
    objects: Sequence[LabelledObject], number: Callable[[str], int]
) -> dict[str, Array]:
    """Returns rows by column: texts (N,) int32 by number, and float64 numbers.

    These are box2d (N, 4), box3d (N, 15) with centre, rotation (row by row) and size, and
    visibility and truncation (N,).
    """
    count = len(objects)
    columns: dict[str, Array] = {
        "name": np.array([number(each.name) for each in objects], np.int32),
        "asset": np.array([number(each.asset) for each in objects], np.int32),
        "box2d": np.full((count, 4), np.nan),
        "box3d": np.full((count, 15), np.nan),
        "visibility": np.full(count, np.nan),
        "truncation": np.full(count, np.nan),
    }
    for row, each in enumerate(objects):
        if each.box2d is not None:
            columns["box2d"][row] = each.box2d
        if (box := each.box3d) is not None:
            columns["box3d"][row] = np.concatenate([box.centre, box.rotation.ravel(), box.size])
        for name in ("visibility", "truncation"):
            if (share := getattr(each, name)) is not None:
                columns[name][row] = share
    return columns


def objects_of_rows(
    columns: Mapping[str, Array], text: Callable[[int], str]
) -> tuple[LabelledObject, ...]:
    """Returns the objects of the rows that `rows_of_objects` returns."""
    boxes2d = columns["box2d"]
    boxes3d = columns["box3d"]
    shares = {name: columns[name].tolist() for name in ("visibility", "truncation")}
    known2d = ~np.isnan(boxes2d[:, 0])
    known3d = ~np.isnan(boxes3d[:, 0])
    return tuple(
        LabelledObject(
            name=text(name),
            asset=text(asset),
            box2d=boxes2d[row] if known2d[row] else None,
            box3d=_box(boxes3d[row]) if known3d[row] else None,
            visibility=_known(shares["visibility"][row]),
            truncation=_known(shares["truncation"][row]),
        )
        for row, (name, asset) in enumerate(
            zip(columns["name"].tolist(), columns["asset"].tolist(), strict=True)
        )
    )


def _box(row: Array) -> Box3d:
    return Box3d(row[:3], row[3:12].reshape(3, 3), row[12:])


def _known(share: float) -> float | None:
    return None if math.isnan(share) else share
