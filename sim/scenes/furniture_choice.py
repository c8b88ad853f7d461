"""The choice between parametric assets and those of catalogues."""

import os
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import Range
from stringline.sim.scenes.asset_classes import CLASSES, usual_length
from stringline.sim.scenes.assets import Asset
from stringline.sim.scenes.catalogue import load_assets
from stringline.sim.scenes.rooms import seeded_asset

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "stringline" / "furniture"
MOST_FACES = 15_000  # Of pieces in rooms; others would take longer than all the rest of an image.
LENGTHS = (0.6, 1.6)  # Of a piece against the usual one of the class that it replaces.
SHARES = Range(least=0, most=1)


@dataclass(frozen=True)
class FurnitureChoice:
    """Draws assets of classes, some of them from catalogues; the files are read at the first draw.

    A piece can replace an asset of a class if the head nouns of both are the same and the sizes are
    similar.

    Attributes:
        paths: Catalogues and folders; see `load_assets`.
        share: Share of assets from them, for classes of which they have pieces.
    """

    paths: tuple[str, ...]
    share: float = 0.5

    def __post_init__(self) -> None:
        SHARES.check(furniture_share=self.share)

    @cached_property
    def pieces(self) -> dict[str, list[Asset]]:
        """The usable pieces by class."""
        found = [
            asset
            for path in self.paths
            for asset in load_assets(path, CACHE.expanduser()).assets
            if asset.stand != "opening" and _faces(asset) <= MOST_FACES
        ]
        by_noun = defaultdict(list)
        for asset in found:
            by_noun[asset.noun].append(asset)
        return {name: _similar(name, by_noun[name.split()[-1]]) for name in CLASSES}

    def __call__(self, name: str, rng: np.random.Generator) -> Asset:
        """Draws an asset of a class."""
        pieces = self.pieces[name] if self.paths else []
        if pieces and rng.uniform() < self.share:
            return pieces[int(rng.integers(len(pieces)))]
        return seeded_asset(name, rng)


def _faces(asset: Asset) -> int:
    return sum(len(one.mesh.faces) for one in asset.solids if one.mesh is not None)


def _similar(name: str, assets: list[Asset]) -> list[Asset]:
    usual = usual_length(name)
    low, high = LENGTHS
    return [one for one in assets if low < np.linalg.norm(one.size) / usual < high]
