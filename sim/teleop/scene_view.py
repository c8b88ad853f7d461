"""The world in a viser scene: the shapes of every body, at the poses of the physics."""

from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np

from stringline.sim.teleop.shapes import DrawnBody, Triangles, appearance, drawn_bodies

MOVED = 1e-5  # Smallest change, in metres or parts of a quaternion, that is sent.


@dataclass
class SceneView:
    """Draws a model with a server of viser, and follows its data."""

    server: Any
    model: mujoco.MjModel
    _frames: dict[int, Any] = field(init=False, default_factory=dict)
    _surfaces: list[Any] = field(init=False, default_factory=list)
    _appearance: bytes = field(init=False, default=b"")

    def update(self, data: mujoco.MjData) -> None:
        """Updates all poses; draws the model anew if its appearance has changed."""
        now = appearance(self.model)
        if now != self._appearance:
            self._appearance = now
            self._draw()
        with self.server.atomic():
            for body in self._moved(data):
                frame = self._frames[body]
                frame.position = data.xpos[body]
                frame.wxyz = data.xquat[body]
                self._position[body] = data.xpos[body]
                self._turn[body] = data.xquat[body]

    def _moved(self, data: mujoco.MjData) -> list[int]:
        away = np.abs(data.xpos - self._position).max(axis=1) > MOVED
        turned = np.abs(data.xquat - self._turn).max(axis=1) > MOVED
        return [body for body in np.flatnonzero(away | turned).tolist() if body in self._frames]

    def _draw(self) -> None:
        for node in [*self._surfaces, *self._frames.values()]:
            node.remove()
        self._surfaces.clear()
        # Poses of new frames.
        self._position = np.zeros((self.model.nbody, 3))
        self._turn = np.tile([1.0, 0.0, 0.0, 0.0], (self.model.nbody, 1))
        self._frames = {body.number: self._draw_body(body) for body in drawn_bodies(self.model)}

    def _draw_body(self, body: DrawnBody) -> Any:
        frame = self.server.scene.add_frame(f"/world/{body.number}", show_axes=False)
        for number, (colour, surface) in enumerate(body.surfaces.items()):
            self._draw_surface(f"/world/{body.number}/{number}", colour, surface)
        return frame

    def _draw_surface(self, name: str, colour: tuple[float, ...], surface: Triangles) -> None:
        node = self.server.scene.add_mesh_simple(
            name,
            surface.vertices.astype(np.float32),
            surface.faces.astype(np.uint32),
            color=tuple(round(255 * value) for value in colour[:3]),
            opacity=None if colour[3] >= 1.0 else colour[3],
            cast_shadow=False,
            receive_shadow=False,
        )
        self._surfaces.append(node)
