"""Rooms: where assets stand."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stringline.sim.scenes.asset_classes import VARIANTS, make_asset
from stringline.sim.scenes.assets import Asset, Top
from stringline.sim.scenes.packing import Packing, Rectangle
from stringline.sim.scenes.solids import Vectors, turned

FROM_WALL_M = 0.1  # Space of what hangs on walls.
CLOSE_M = 0.005  # Margin between things at full packing.
LOOSE_M = 0.05  # Further margin at packing 0.
SURFACE_TRIES = 6
HEIGHT_M = (2.5, 3.0)
WALL_HEIGHTS_M = (1.4, 1.8)

ChooseAsset = Callable[[str, np.random.Generator], Asset]


@dataclass(frozen=True, eq=False)
class PlacedAsset:
    """An asset in a room.

    Attributes:
        position: (3,) of the origin of its frame in the frame of the room, metres.
        yaw: Its angle about z, rad.
        support: Index of the asset on which it stands; None on the floor or a wall.
    """

    asset: Asset
    position: Vectors
    yaw: float
    support: int | None = None

    def centre(self) -> Vectors:
        """Returns the middle (3,) of its box in the frame of the room."""
        middle = (self.asset.low + self.asset.high) / 2
        return np.asarray(self.position + turned(self.yaw) @ middle)

    def rectangle(self) -> Rectangle:
        """Returns the outline of its box from above."""
        centre = self.centre()
        half = self.asset.size / 2
        return Rectangle(centre[0], centre[1], half[0], half[1], self.yaw)


@dataclass(frozen=True, eq=False)
class Surface:
    """A top of a placed asset with what stands on it; in the frame of the top's middle."""

    owner: int
    top: Top
    packing: Packing


def seeded_asset(name: str, rng: np.random.Generator) -> Asset:
    """Draws a variant of a parametric class."""
    return make_asset(name, int(rng.integers(VARIANTS)))


@dataclass(eq=False)
class Room:
    """A room with level floor at z = 0 and walls at `half`, which is filled asset by asset.

    Attributes:
        rng: Stream of the room.
        half: (x, y) half lengths, metres.
        packing: Density, 0 to 1.
        most: Largest number of assets; nothing is placed beyond it.
        choose: Draws an asset of a class.
    """

    rng: np.random.Generator
    half: tuple[float, float]
    packing: float
    most: int
    choose: ChooseAsset = seeded_asset
    placed: list[PlacedAsset] = field(default_factory=list)
    surfaces: list[Surface] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.height = float(self.rng.uniform(*HEIGHT_M))
        x, y = self.half
        self.margin = CLOSE_M + (1 - self.packing) * LOOSE_M
        self._floor = Packing(x - FROM_WALL_M, y - FROM_WALL_M, self.margin)
        self._walls = [Packing(length, self.height, self.margin) for length in (x, y, x, y)]

    def is_full(self) -> bool:
        """Returns whether the room has as many assets as it may have."""
        return len(self.placed) >= self.most

    def stand(self, asset: Asset, x: float, y: float, yaw: float) -> int | None:
        """Puts the middle of an asset at a place on the floor; None if it does not fit there."""
        if self.is_full():
            return None
        spot = Rectangle(x, y, asset.size[0] / 2, asset.size[1] / 2, yaw)
        if not self._floor.fits(spot):
            return None
        self._floor.add(spot)
        return self._put(asset, x, y, 0.0, yaw, None)

    def stand_at_wall(self, name: str, tries: int = 20) -> int | None:
        """Puts an asset of a class with its back to a wall; None if no place was found."""
        asset = self.choose(name, self.rng)
        for _ in range(tries):
            wall = int(self.rng.integers(4))
            along = self._draw_along(wall, asset)
            if along is None:
                continue
            distance = self._wall_distance(wall) - FROM_WALL_M - asset.size[1] / 2 - 1e-6
            x, y, yaw = _at_wall(wall, along, distance)
            if (found := self.stand(asset, x, y, yaw)) is not None:
                return found
        return None

    def stand_free(self, name: str, share: float = 1.0, tries: int = 20) -> int | None:
        """Puts an asset of a class anywhere in a share of the floor; None if nothing fits."""
        asset = self.choose(name, self.rng)
        for _ in range(tries):
            x, y = (float(share * self.rng.uniform(-half, half)) for half in self.half)
            yaw = float(self.rng.uniform(-np.pi, np.pi))
            if (found := self.stand(asset, x, y, yaw)) is not None:
                return found
        return None

    def stand_beside(
        self, name: str, anchor: int, direction: float, gap: float = 0.0, face: bool = True
    ) -> int | None:
        """Puts an asset beside another one, as near as it fits; it faces it if `face`.

        The direction is an angle in the frame of the other: -pi / 2 is in front of it.
        """
        asset = self.choose(name, self.rng)
        other = self.placed[anchor]
        at = other.yaw + direction
        middle = other.centre()
        toward = np.array([np.cos(at), np.sin(at)])
        # Its front -y points to the other at a yaw of at - pi / 2.
        yaw = at - np.pi / 2 if face else other.yaw
        yaw += float(self.rng.normal(0, 0.08))
        half = other.asset.size / 2
        reach = abs(np.cos(direction)) * half[0] + abs(np.sin(direction)) * half[1]
        for further in np.linspace(0, 0.5, 6):
            x, y = middle[:2] + toward * (reach + asset.size[1] / 2 + gap + further)
            if (found := self.stand(asset, float(x), float(y), yaw)) is not None:
                return found
        return None

    def put_on(self, name: str, owner: int | None = None) -> int | None:
        """Puts an asset of a class on a top, of `owner` if given; None if nothing fits."""
        asset = self.choose(name, self.rng)
        spaces = [one for one in self.surfaces if owner is None or one.owner == owner]
        if not spaces or self.is_full():
            return None
        for _ in range(SURFACE_TRIES):
            surface = spaces[self.rng.integers(len(spaces))]
            if asset.size[2] > surface.top.clearance:
                continue
            packing = surface.packing
            yaw = self._yaw_on(surface)
            x = float(self.rng.uniform(-packing.half_x, packing.half_x))
            y = float(self.rng.uniform(-packing.half_y, packing.half_y))
            spot = Rectangle(x, y, asset.size[0] / 2, asset.size[1] / 2, yaw)
            if (found := self.set_on(asset, surface, spot)) is not None:
                return found
        return None

    def set_on(self, asset: Asset, surface: Surface, spot: Rectangle) -> int | None:
        """Puts an asset on a top at a given spot of its middle; None if it does not fit."""
        if self.is_full() or not surface.packing.fits(spot):
            return None
        surface.packing.add(spot)
        return self._lift(asset, surface, spot)

    def hang(self, name: str, tries: int = 10) -> int | None:
        """Puts an asset of a class on a wall; None if nothing fits."""
        asset = self.choose(name, self.rng)
        if self.is_full():
            return None
        for _ in range(tries):
            wall = int(self.rng.integers(4))
            along = self._draw_along(wall, asset)
            z = float(self.rng.uniform(*WALL_HEIGHTS_M))
            high = asset.size[2] / 2
            if along is None or z + 2 * high > self.height or asset.size[1] > FROM_WALL_M:
                continue
            spot = Rectangle(along, z + high - self.height / 2, asset.size[0] / 2, high)
            if self._walls[wall].fits(spot):
                self._walls[wall].add(spot)
                x, y, yaw = _at_wall(wall, along, self._wall_distance(wall) - asset.size[1] / 2)
                return self._put(asset, x, y, z, yaw, None)
        return None

    def _yaw_on(self, surface: Surface) -> float:
        """Draws a yaw on a top: things on shelves face as these do, others mostly too."""
        if surface.top.clearance < 1.0:
            return 0.0
        if self.rng.uniform() < 0.5:
            return float(self.rng.normal(0, 0.2))
        return float(self.rng.uniform(-np.pi, np.pi))

    def _wall_distance(self, wall: int) -> float:
        return self.half[1 - wall % 2]

    def _draw_along(self, wall: int, asset: Asset) -> float | None:
        """Draws a place along a wall; None if the asset is longer than the wall."""
        room = self.half[wall % 2] - FROM_WALL_M - asset.size[0] / 2
        return None if room <= 0 else float(self.rng.uniform(-room, room))

    def _lift(self, asset: Asset, surface: Surface, spot: Rectangle) -> int:
        owner = self.placed[surface.owner]
        middle = np.array([surface.top.x + spot.x, surface.top.y + spot.y, surface.top.z])
        x, y, z = owner.position + turned(owner.yaw) @ middle
        return self._put(asset, x, y, z, owner.yaw + spot.yaw, surface.owner)

    def _put(
        self, asset: Asset, x: float, y: float, z: float, yaw: float, support: int | None
    ) -> int:
        """Adds an asset, given the middle of its box from above and its lowest height."""
        middle = (asset.low + asset.high) / 2
        offset = turned(yaw) @ (middle[0], middle[1], asset.low[2])
        number = len(self.placed)
        self.placed.append(PlacedAsset(asset, np.array([x, y, z]) - offset, yaw, support))
        for top in asset.tops:
            self.surfaces.append(
                Surface(number, top, Packing(top.half_x, top.half_y, self.margin / 2))
            )
        return number


def _at_wall(wall: int, along: float, distance: float) -> tuple[float, float, float]:
    """Returns x, y and yaw of an asset whose back (y) points to one of the four walls."""
    turn = wall * np.pi / 2
    x, y = turned(turn)[:2, :2] @ (along, distance)
    return float(x), float(y), turn
