"""The web page of a session: buttons, numbers, handles, images and status.

Each arm has a handle to drag, numbers of its pose, and its opening. Requests of visitors arrive in
threads of the server and are put into a queue; `poll` executes them in the thread that owns the
world.
"""

import html
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, quaternion
from stringline.policies.remote.protocol import RemoteError
from stringline.sim.teleop.gamepad import GamepadCommand, GamepadControl, is_idle
from stringline.sim.teleop.scene_view import SceneView
from stringline.sim.teleop.steering import (
    Steering,
    angles_of_pose,
    apart,
    pose_of_angles,
    pose_of_quaternion,
)
from stringline.sim.teleop.taking_over import ActingPolicy, add_takeover
from stringline.sim.teleop.teleop_session import Phase, TeleopSession

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


Request = Callable[[], object]
EYE_M = (0.0, -0.85, 0.72)
LOOK_AT_M = (0.0, 0.05, 0.1)
JPEG_QUALITY = 80
AMBIENT = 3.0
RED = "#ff6b6b"
AMBER = "#ffb74d"
GREEN = "#69db7c"
LABELS = {"by the task": None, "success": True, "failure": False}


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
    instruction = task.instruction if session.policy is None else session.policy.instruction
    result = session.result
    stage = f"stage {result.stage} of {len(task.stages) - 1}: {task.stages[result.stage]}"
    success = _coloured("yes", GREEN) if result.success else "no"
    lines = [
        f"<b>{html.escape(instruction)}</b>",
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
    if session.policy is not None and session.phase is Phase.RECORDING:
        phase += f", {_coloured('you lead', AMBER) if session.by_hand else 'the policy leads'}"
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
            raise ValueError(f"page_hz must be a number above 0 (got {hz}).")
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
        if session.policy is not None:
            self._add_policy(session.policy)
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
        except (ValueError, OSError, RemoteError) as error:
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
        self._on_click(self._keep, lambda: session.keep(self._label()))
        self._on_click(self._discard, session.discard)
        self._on_click(self._reset, lambda: session.reset(int(self._seed.value)))

    def _add_policy(self, policy: ActingPolicy) -> None:
        """Adds the controls of a policy: takeover, label of the take, and instruction."""
        gui = self._server.gui
        session = self._session
        with gui.add_folder("policy"):
            session.held = add_takeover(
                gui,
                lambda: self._requests.put(session.take_over),
                lambda: self._requests.put(session.give_back),
            )
            self._labels = gui.add_dropdown(
                "Label", tuple(LABELS), hint="Who decides whether a kept take is a success."
            )
            self._instruction = gui.add_text("Instruction", policy.instruction)
            instruct = gui.add_button("Set the instruction", hint="From the next take on.")
        self._on_click(instruct, lambda: session.instruct(str(self._instruction.value)))

    def _label(self) -> bool | None:
        """Returns the label that a visitor has chosen for this take only; None: the task's."""
        if self._session.policy is None:
            return None
        chosen = LABELS[str(self._labels.value)]
        self._labels.value = next(iter(LABELS))
        return chosen

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
