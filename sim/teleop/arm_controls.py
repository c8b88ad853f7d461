"""Controls of one arm on the page: a handle to drag, numbers of its pose, and the opening."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, quaternion
from stringline.sim.teleop.poses import angles_of_pose, apart, pose_of_angles, pose_of_quaternion
from stringline.sim.teleop.steering import Steering

STEP_OPENING = 0.05
HANDLE_M = 0.16
REACHED_M = 0.07
# Time after the last key until typed numbers are applied: on the way to 0.25 a field contains 0.
SETTLED_S = 0.4
SAME = 1e-6  # Metres or radians.
OPENINGS = {"open": 1.0, "close": 0.0}


class ArmControls:
    """Synchronises an arm's target, its handle and its numbers on a server of viser.

    `do` executes a function in the thread that owns the world.
    """

    def __init__(
        self,
        server: Any,
        steering: Steering,
        arm: str,
        do: Callable[[Callable[[], object]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steering = steering
        self._arm = arm
        self._do = do
        self._clock = clock
        target = steering.targets[arm]
        self._handle_at = target
        self._numbers_at = target
        self._opening_at = steering.openings[arm]
        self._texts = _texts(target)
        self._typed: tuple[float, tuple[str, str]] | None = None
        self._add_handle(server.scene)
        with server.gui.add_folder(f"{arm} arm"):
            self._add_numbers(server.gui)

    @property
    def settled(self) -> bool:
        """Whether typed numbers have not changed for a while."""
        return self._typed is not None and self._clock() >= self._typed[0] + SETTLED_S

    def settle(self) -> None:
        """Applies the typed numbers to the arm's target."""
        assert self._typed is not None, "check settled first"
        _, texts = self._typed
        self._typed = None
        target = self._steering.targets[self._arm].copy()
        if texts[0] != self._texts[0]:
            target[:3, 3] = three_numbers(texts[0])
        if texts[1] != self._texts[1]:
            target[:3, :3] = pose_of_angles(np.zeros(3), three_numbers(texts[1]))[:3, :3]
        self._steering.aim(self._arm, target)
        self._numbers_at = target
        self._texts = texts

    def show(self) -> None:
        """Updates handle and numbers to the target, and the frame to the arm's pose."""
        steering = self._steering
        arm = self._arm
        target = steering.targets[arm]
        opening = steering.openings[arm]
        reached = steering.poses[arm]
        if max(apart(target, self._handle_at)) > SAME:
            self._handle.position = target[:3, 3]
            self._handle.wxyz = quaternion(target[:3, :3])
            self._handle_at = target
        if max(apart(target, self._numbers_at)) > SAME and self._typed is None:
            self._numbers_at = target
            self._texts = _texts(target)
            self._position.value, self._angles.value = self._texts
        if opening != self._opening_at:
            self._opening_at = self._opening.value = opening
        self._reached.position = reached[:3, 3]
        self._reached.wxyz = quaternion(reached[:3, :3])
        self._reached.visible = steering.reach(arm).held

    def note(self) -> str:
        """Returns a text if the target is out of reach, otherwise an empty one."""
        reach = self._steering.reach(self._arm)
        if not reach.held:
            return ""
        return (
            f"{self._arm}: out of reach, held {100 * reach.metres:.1f} cm and "
            f"{np.degrees(reach.radians):.0f}° short"
        )

    def _add_handle(self, scene: Any) -> None:
        position = self._handle_at[:3, 3]
        wxyz = quaternion(self._handle_at[:3, :3])
        place = {"position": position, "wxyz": wxyz}
        self._handle = scene.add_transform_controls(
            f"/handles/{self._arm}", HANDLE_M, depth_test=False, opacity=0.8, **place
        )
        # The pose of the arm while its handle is out of reach.
        self._reached = scene.add_frame(
            f"/reached/{self._arm}",
            axes_length=REACHED_M,
            axes_radius=REACHED_M / 20,
            visible=False,
            **place,
        )

        async def dragged(event: Any) -> None:
            place = np.array(event.target.position), np.array(event.target.wxyz)
            self._do(lambda: self._drag(*place))

        self._handle.on_update(dragged)

    def _drag(self, position: Vector, wxyz: Vector) -> None:
        target = pose_of_quaternion(position, wxyz)
        self._steering.aim(self._arm, target)
        self._handle_at = target

    def _add_numbers(self, gui: Any) -> None:
        # As text, since viser's fields for numbers do not accept a minus as the first key.
        self._position = gui.add_text("x, y, z (m)", self._texts[0], hint="In the base frame.")
        about = "About z; down; about the gripper's own axis."
        self._angles = gui.add_text("heading, tilt, roll (°)", self._texts[1], hint=about)
        self._opening = gui.add_slider("opening", 0.0, 1.0, STEP_OPENING, self._opening_at)
        buttons = gui.add_button_group("gripper", tuple(OPENINGS))
        recall = gui.add_button(
            "Target to the gripper", hint="Sets the target to the arm's current pose."
        )

        async def typed(event: Any) -> None:
            if event.client_id is not None:  # Not an update by `show`.
                texts = str(self._position.value), str(self._angles.value)
                self._do(lambda: self._type(texts))

        async def slid(event: Any) -> None:
            if event.client_id is not None:
                self._grip(float(event.target.value))

        async def pressed(event: Any) -> None:
            self._grip(OPENINGS[event.target.value], shown=False)

        async def recalled(event: Any) -> None:
            self._do(lambda: self._steering.recall(self._arm))

        self._position.on_update(typed)
        self._angles.on_update(typed)
        self._opening.on_update(slid)
        buttons.on_click(pressed)
        recall.on_click(recalled)

    def _type(self, texts: tuple[str, str]) -> None:
        self._typed = (self._clock(), texts)

    def _grip(self, opening: float, *, shown: bool = True) -> None:
        def request() -> None:
            self._steering.grip(self._arm, opening)
            if shown:
                self._opening_at = opening

        self._do(request)


def three_numbers(text: str) -> Vector:
    """Parses three numbers (3,) with commas or spaces between them."""
    words = text.replace(",", " ").split()
    try:
        numbers = np.array([float(word) for word in words])
    except ValueError:
        numbers = np.empty(0)
    if len(numbers) != 3 or not np.isfinite(numbers).all():
        raise ValueError(f"Got {text!r}; allowed: three numbers, such as -0.2, 0, 0.25.")
    return numbers


def _texts(T: Matrix) -> tuple[str, str]:
    """Returns position and angles of a pose (4, 4) as texts of the page."""
    # Adding 0 turns -0 into 0.
    position = np.round(T[:3, 3], 3) + 0.0
    angles = np.round(angles_of_pose(T), 1) + 0.0
    metres = ", ".join(f"{value:.3f}" for value in position)
    return metres, ", ".join(f"{value:.1f}" for value in angles)
