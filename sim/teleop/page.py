"""The page of the teleoperation: buttons, numbers, handles, images and status, in step with the session.

What visitors do arrives in threads of the server and is put into a line; `poll` does it in the
thread that owns the world.
"""

import html
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.sim.teleop.arm_controls import ArmControls
from stringline.sim.teleop.gamepad import Wish, still
from stringline.sim.teleop.hands import Hands
from stringline.sim.teleop.scene_view import Scene
from stringline.sim.teleop.teleop_session import Operation, Phase


def mosaic(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Returns images (H, W, 3) of one size side by side, two in a row, from the left and the top; gaps are black."""
    first = images[0]
    columns = min(len(images), 2)
    rows = -(-len(images) // columns)
    height, width = first.shape[:2]
    whole = np.zeros((rows * height, columns * width, 3), dtype=np.uint8)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        whole[row * height : (row + 1) * height, column * width : (column + 1) * width] = image
    return whole


RED = "#ff6b6b"
AMBER = "#ffb74d"
GREEN = "#69db7c"


def status_html(operation: Operation, speed: float, notes: Sequence[str]) -> str:
    """Says what is to be done, how far it is, what is recorded, and what is wrong.

    Args:
        operation: What goes on.
        speed: Of the world, as a share of real time.
        notes: What is wrong, or special, in words; empty ones are left out.
    """
    task = operation.world.task
    result = operation.result
    lines = [
        f"<b>{html.escape(task.instruction)}</b>",
        _recording(operation),
        (
            f"stage {result.stage} of {len(task.stages) - 1}: "
            f"{html.escape(task.stages[result.stage])}; success: "
        )
        + (_coloured("yes", GREEN) if result.success else "no"),
        f"{result.time:.1f} s, {100 * speed:.0f} % of real time",
        *(_coloured(note, AMBER) for note in notes if note),
        html.escape(operation.notice),
    ]
    return (
        f'<div style="padding: 0 1em; line-height: '
        f'1.5">{"<br>".join(line for line in lines if line)}</div>'
    )


def _recording(operation: Operation) -> str:
    takes = operation.takes
    phase = (
        str(operation.phase)
        if operation.phase is Phase.FREE
        else _coloured(str(operation.phase), RED)
    )
    seconds = f", {takes.steps / operation.world.contract.control_hz:.1f} s" if takes.open else ""
    return f"{phase}{seconds}; seed {operation.seed}; {len(takes.kept)} kept"


def _coloured(text: str, colour: str) -> str:
    return f'<span style="color: {colour}">{html.escape(text)}</span>'


Deed = Callable[[], object]
EYE_M = (0.0, -0.85, 0.72)
LOOK_AT_M = (0.0, 0.05, 0.1)
JPEG_QUALITY = 80
AMBIENT = 3.0


class Page:
    """Shows an operation to all visitors, and lets them steer it.

    Args:
        server: Of viser.
        operation: What is steered.
        hz: How often the page is brought up to date, at most.
        clock: Seconds.

    Attributes:
        trouble: Why the last thing that was asked for could not be done.
    """

    def __init__(
        self,
        server: Any,
        operation: Operation,
        *,
        hz: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not hz > 0:
            raise ValueError(f"page_hz is {hz}; it must be above 0.")
        self._server = server
        self._operation = operation
        self._clock = clock
        self._period = 1.0 / hz
        self._deeds: queue.SimpleQueue[Deed] = queue.SimpleQueue()
        self._next = 0.0
        self.trouble = ""
        server.gui.configure_theme(
            control_width="large", dark_mode=True, show_logo=False, show_share_button=False
        )
        server.gui.main_panel.dock_right()
        # Reflections and shadows take a browser without a GPU half a minute to prepare, and much of
        # every image.
        server.scene.configure_environment_map(hdri=None)
        server.scene.configure_default_lights(cast_shadow=False)
        server.scene.add_light_ambient("/light", intensity=AMBIENT)
        server.initial_camera.position = EYE_M
        server.initial_camera.look_at = LOOK_AT_M
        self._scene = Scene(server, operation.world.physics.model.ptr)
        self._status = server.gui.add_html("")
        self._add_buttons()
        self._add_images()
        arms = operation.world.contract.arms
        self._arms = [
            ArmControls(server, operation.steering, arm, self._deeds.put, clock) for arm in arms
        ]

    @property
    def watched(self) -> bool:
        """Whether there is a visitor."""
        return bool(self._server.get_clients())

    def poll(self) -> None:
        """Does what visitors have asked for since the last call; what cannot be done is shown to them."""
        for _ in range(self._deeds.qsize()):
            self._attempt(self._deeds.get())
        for controls in self._arms:
            if controls.settled:
                self._attempt(controls.settle)

    def follow(self, hands: Hands, wish: Wish) -> None:
        """Does what a gamepad asks for; what cannot be done is shown."""
        if not still(wish):
            self._attempt(lambda: hands.follow(wish))

    def _attempt(self, deed: Deed) -> None:
        try:
            deed()
            self.trouble = ""
        except (ValueError, OSError) as error:
            self.trouble = str(error)

    def show(self, speed: float = 1.0, note: str = "") -> None:
        """Brings the page up to date, if it is time for that and somebody looks.

        Args:
            speed: Of the world, as a share of real time.
            note: What else is to be said.
        """
        if self._clock() < self._next or not self.watched:
            return
        self._next = self._clock() + self._period
        self._scene.update(self._operation.world.physics.data.ptr)
        for controls in self._arms:
            controls.show()
        self._show_buttons()
        self._show_images()
        notes = [self.trouble, *(controls.note() for controls in self._arms), note]
        self._status.content = status_html(self._operation, speed, notes)

    def _add_buttons(self) -> None:
        gui = self._server.gui
        operation = self._operation
        self._record = gui.add_button(
            "Record", color="red", hint="Begins the episode of the seed, and a take of it."
        )
        self._keep = gui.add_button(
            "Keep",
            color="green",
            hint="Puts the take into the store, and goes on to the next seed.",
        )
        self._discard = gui.add_button("Discard", hint="Forgets the take.")
        self._seed = gui.add_number("Seed", operation.seed, min=0, step=1)
        self._reset = gui.add_button("Reset", hint="Begins the episode of the seed.")
        self._seed_shown = operation.seed
        self._on_click(self._record, lambda: operation.record(int(self._seed.value)))
        self._on_click(self._keep, operation.keep)
        self._on_click(self._discard, operation.discard)
        self._on_click(self._reset, lambda: operation.reset(int(self._seed.value)))

    def _on_click(self, button: Any, deed: Deed) -> None:
        async def clicked(
            event: Any,
        ) -> None:  # In the server's own loop, so that clicks come in their order.
            self._deeds.put(deed)

        button.on_click(clicked)

    def _show_buttons(self) -> None:
        takes = self._operation.takes
        operation = self._operation
        self._record.disabled = self._reset.disabled = self._seed.disabled = takes.open
        self._keep.disabled = not takes.steps
        self._discard.disabled = not takes.open
        if self._seed_shown != operation.seed:
            self._seed_shown = self._seed.value = operation.seed

    def _add_images(self) -> None:
        cameras = self._operation.world.contract.cameras
        self._shown = self._operation.images
        if cameras:
            black = mosaic(
                [np.zeros((camera.height, camera.width, 3), np.uint8) for camera in cameras]
            )
            names = ", ".join(camera.name for camera in cameras)
            self._images = self._server.gui.add_image(
                black, label=names, format="jpeg", jpeg_quality=JPEG_QUALITY
            )

    def _show_images(self) -> None:
        if self._operation.images and self._operation.images is not self._shown:
            self._shown = self._operation.images
            self._images.image = mosaic(list(self._shown.values()))
