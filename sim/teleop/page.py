"""The web page of a session: buttons, numbers, handles, images and status.

Requests of visitors arrive in threads of the server and are put into a queue; `poll` executes them
in the thread that owns the world.
"""

import html
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.sim.teleop.arm_controls import ArmControls
from stringline.sim.teleop.gamepad import GamepadCommand, is_idle
from stringline.sim.teleop.gamepad_control import GamepadControl
from stringline.sim.teleop.scene_view import SceneView
from stringline.sim.teleop.teleop_session import Phase, TeleopSession

Request = Callable[[], object]
EYE_M = (0.0, -0.85, 0.72)
LOOK_AT_M = (0.0, 0.05, 0.1)
JPEG_QUALITY = 80
AMBIENT = 3.0
RED = "#ff6b6b"
AMBER = "#ffb74d"
GREEN = "#69db7c"


def mosaic(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Returns images (H, W, 3) of one size in a grid of two columns; gaps are black."""
    first = images[0]
    columns = min(len(images), 2)
    rows = -(-len(images) // columns)
    height, width = first.shape[:2]
    whole = np.zeros((rows * height, columns * width, 3), dtype=np.uint8)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        whole[row * height : (row + 1) * height, column * width : (column + 1) * width] = image
    return whole


def status_html(session: TeleopSession, speed: float, notes: Sequence[str]) -> str:
    """Returns the status as HTML: instruction, progress, recording and notes that are not empty.

    `speed` is that of the world as a share of real time.
    """
    task = session.world.task
    result = session.result
    stage = f"stage {result.stage} of {len(task.stages) - 1}: {task.stages[result.stage]}"
    success = _coloured("yes", GREEN) if result.success else "no"
    lines = [
        f"<b>{html.escape(task.instruction)}</b>",
        _recording(session),
        f"{html.escape(stage)}; success: {success}",
        f"{result.time:.1f} s, {100 * speed:.0f} % of real time",
        *(_coloured(note, AMBER) for note in notes if note),
        html.escape(session.notice),
    ]
    text = "<br>".join(line for line in lines if line)
    return f'<div style="padding: 0 1em; line-height: 1.5">{text}</div>'


def _recording(session: TeleopSession) -> str:
    recorder = session.recorder
    phase = str(session.phase)
    if session.phase is not Phase.FREE:
        phase = _coloured(phase, RED)
    if recorder.open:
        phase += f", {recorder.steps / session.world.contract.control_hz:.1f} s"
    return f"{phase}; seed {session.seed}; {len(recorder.kept)} kept"


def _coloured(text: str, colour: str) -> str:
    return f'<span style="color: {colour}">{html.escape(text)}</span>'


class Page:
    """Shows a session to all visitors, and executes their requests.

    Args:
        server: Server of viser.
        session: The session.
        hz: Largest number of updates of the page per second.
        clock: Returns the time, seconds.

    Attributes:
        error: Why the last request of a visitor has failed.
    """

    def __init__(
        self,
        server: Any,
        session: TeleopSession,
        *,
        hz: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not hz > 0:
            raise ValueError(f"page_hz is {hz}; allowed: above 0.")
        self._server = server
        self._session = session
        self._clock = clock
        self._period = 1.0 / hz
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._next = 0.0
        self.error = ""
        server.gui.configure_theme(
            control_width="large", dark_mode=True, show_logo=False, show_share_button=False
        )
        server.gui.main_panel.dock_right()
        # A browser without a GPU needs half a minute to prepare reflections and shadows, and much
        # of the time of every image.
        server.scene.configure_environment_map(hdri=None)
        server.scene.configure_default_lights(cast_shadow=False)
        server.scene.add_light_ambient("/light", intensity=AMBIENT)
        server.initial_camera.position = EYE_M
        server.initial_camera.look_at = LOOK_AT_M
        self._scene = SceneView(server, session.world.physics.model.ptr)
        self._status = server.gui.add_html("")
        self._add_buttons()
        self._add_images()
        arms = session.world.contract.arms
        self._arms = [
            ArmControls(server, session.steering, arm, self._requests.put, clock) for arm in arms
        ]

    @property
    def watched(self) -> bool:
        """Whether there is a visitor."""
        return bool(self._server.get_clients())

    def poll(self) -> None:
        """Executes the requests of visitors since the last call, and shows errors to them."""
        for _ in range(self._requests.qsize()):
            self._attempt(self._requests.get())
        for controls in self._arms:
            if controls.settled:
                self._attempt(controls.settle)

    def follow(self, control: GamepadControl, command: GamepadCommand) -> None:
        """Executes the command of a gamepad, and shows an error to visitors."""
        if not is_idle(command):
            self._attempt(lambda: control.follow(command))

    def _attempt(self, request: Request) -> None:
        try:
            request()
            self.error = ""
        except (ValueError, OSError) as error:
            self.error = str(error)

    def show(self, speed: float = 1.0, note: str = "") -> None:
        """Updates the page if an update is due and there are visitors; see `status_html`."""
        if self._clock() < self._next or not self.watched:
            return
        self._next = self._clock() + self._period
        self._scene.update(self._session.world.physics.data.ptr)
        for controls in self._arms:
            controls.show()
        self._show_buttons()
        self._show_images()
        notes = [self.error, *(controls.note() for controls in self._arms), note]
        self._status.content = status_html(self._session, speed, notes)

    def _add_buttons(self) -> None:
        gui = self._server.gui
        session = self._session
        self._record = gui.add_button(
            "Record", color="red", hint="Begins the episode of the seed, and records a take of it."
        )
        self._keep = gui.add_button(
            "Keep",
            color="green",
            hint="Saves the take to the store, and goes on to the next seed.",
        )
        self._discard = gui.add_button("Discard", hint="Deletes the take.")
        self._seed = gui.add_number("Seed", session.seed, min=0, step=1)
        self._reset = gui.add_button("Reset", hint="Begins the episode of the seed.")
        self._seed_shown = session.seed
        self._on_click(self._record, lambda: session.record(int(self._seed.value)))
        self._on_click(self._keep, session.keep)
        self._on_click(self._discard, session.discard)
        self._on_click(self._reset, lambda: session.reset(int(self._seed.value)))

    def _on_click(self, button: Any, request: Request) -> None:
        # A coroutine runs in the server's own loop, which keeps the order of clicks.
        async def clicked(event: Any) -> None:
            self._requests.put(request)

        button.on_click(clicked)

    def _show_buttons(self) -> None:
        recorder = self._session.recorder
        session = self._session
        self._record.disabled = self._reset.disabled = self._seed.disabled = recorder.open
        self._keep.disabled = not recorder.steps
        self._discard.disabled = not recorder.open
        if self._seed_shown != session.seed:
            self._seed_shown = self._seed.value = session.seed

    def _add_images(self) -> None:
        cameras = self._session.world.contract.cameras
        self._shown = self._session.images
        if cameras:
            sizes = [(camera.height, camera.width, 3) for camera in cameras]
            black = mosaic([np.zeros(size, np.uint8) for size in sizes])
            names = ", ".join(camera.name for camera in cameras)
            self._images = self._server.gui.add_image(
                black, label=names, format="jpeg", jpeg_quality=JPEG_QUALITY
            )

    def _show_images(self) -> None:
        if self._session.images and self._session.images is not self._shown:
            self._shown = self._session.images
            self._images.image = mosaic(list(self._shown.values()))
