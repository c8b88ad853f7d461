"""Sessions of several episodes with the policy loaded, and the page on which a person takes over.

The operator starts, labels and discards: the evaluation of a policy on arms without a judge. At its
end the session has the success rates of the policy alone, in which an episode with a takeover is no
success.

The page in the browser stands for leader arms: it steers targets, from the command of the followers
on, and `Teleoperation` and the safety filter treat them like those of leaders. They move only while
the person holds a key or a button down, and rest at the command while the filter holds the arms.
"""

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.deployment.deployment_settings import PAGE, DeploymentSettings
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.deployment.teleop_deployment import connect_leaders
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.operator.live_status import print_line
from stringline.real_robot.operator.operator_keys import MESSAGES as OPERATOR_MESSAGES
from stringline.real_robot.operator.operator_keys import Key, Keys, TerminalKeys
from stringline.real_robot.recording.observation_bridge import FrameSource
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot
from stringline.real_robot.safety.reasons import MESSAGES, Mode, Reason
from stringline.sim.evaluation.results import attempts_table
from stringline.sim.statistics.intervals import Attempt
from stringline.sim.teleop.page import JPEG_QUALITY, ArmControls
from stringline.sim.teleop.page_server import close_server, open_server
from stringline.sim.teleop.steering import Speeds, Steering
from stringline.sim.teleop.taking_over import HoldToRun, add_takeover

HOST = "127.0.0.1"
_POLL_S = 0.05
_SHOW_S = 0.2
_LEADING_S = 0.3  # While a person leads, the leaders are read 50 times a second.
_HOLD = "hold"
_LEAD = "lead"
_CONTINUE = "continue"
_BUTTONS: Mapping[str, Key | str] = {
    "Hold": _HOLD,
    "End the episode": Key.END,
    "Success": Key.SUCCESS,
    "Failure": Key.FAILURE,
    "Discard": Key.DISCARD,
    "Next instruction": Key.INSTRUCTION,
    "Start the next episode": Key.START,
}
# What these mean while the policy leads, while a person leads, and while the arms wait: a second
# press of Hold must not continue.
_OF_POLICY: Mapping[str, Key] = {_HOLD: Key.HOLD, _LEAD: Key.TAKE_OVER}
_OF_PERSON: Mapping[str, Key] = {_HOLD: Key.HOLD, _CONTINUE: Key.TAKE_OVER}
_OF_REST: Mapping[str, Key] = {_CONTINUE: Key.HOLD, _LEAD: Key.TAKE_OVER}


class PageLeaders:
    """Leaders that stand where a page steers them.

    Attributes:
        steering: The targets.
        held: Permits motion.
        poll: Called before each reading.
    """

    def __init__(self, device: DeviceProcess, embodiment: Embodiment, control_hz: float) -> None:
        self._device = device
        self.servos = device.servos
        self.arms = device.arms
        self.steering = Steering(embodiment, control_hz, Speeds())
        self.held = HoldToRun()
        self.poll: Callable[[], object] = lambda: None
        self._read_s = float("-inf")

    @property
    def leading(self) -> bool:
        """Whether the arms follow the page."""
        return time.monotonic() - self._read_s < _LEADING_S

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Returns the targets of this control period as the state of leaders."""
        self.poll()
        self._read_s = time.monotonic()
        state = self._device.latest()
        if state.mode is not Mode.RUN:
            self.steering.reset(state.command)
        elif self.held.held:
            self.steering.step()
        arms = state.arms
        return replace(
            arms,
            time=clock(),
            position=self.steering.q.copy(),
            servo_error=np.zeros_like(arms.servo_error),
            servo_misses=np.zeros_like(arms.servo_misses),
            lost=np.zeros_like(arms.lost),
        )


class TakeoverPage:
    """The page: handles and numbers of the arms, images, the controls of a takeover, and keys.

    Requests of visitors wait until `pressed` or `leaders.read` execute them, in their thread.

    Args:
        server: Server of viser.
        device: Device process of the arms.
        frames: Source of the images that it shows.
        terminal: Keys of the terminal, which count as well.
    """

    available = True

    def __init__(
        self,
        server: Any,
        device: DeviceProcess,
        embodiment: Embodiment,
        control_hz: float,
        frames: FrameSource,
        terminal: Keys,
    ) -> None:
        self.leaders = PageLeaders(device, embodiment, control_hz)
        self.leaders.poll = self._execute
        self._device = device
        self._embodiment = embodiment
        self._frames = frames
        self._terminal = terminal
        self._requests = queue.SimpleQueue[Callable[[], object]]()
        self._keys = queue.SimpleQueue[Key | str]()
        self._next_s = 0.0
        self._error = ""
        self._images = dict[str, Any]()
        self._server = server
        gui = server.gui
        gui.configure_theme(dark_mode=True, show_logo=False, show_share_button=False)
        self._status = gui.add_markdown("")
        self.leaders.held = add_takeover(
            gui, lambda: self._keys.put(_LEAD), lambda: self._keys.put(_CONTINUE)
        )
        for label, key in _BUTTONS.items():
            self._add_button(label, key)
        self._arms = [
            ArmControls(server, self.leaders.steering, arm, self._requests.put)
            for arm in embodiment.arms
        ]

    def _add_button(self, label: str, key: Key | str) -> None:
        async def clicked(_: Any) -> None:
            self._keys.put(key)

        self._server.gui.add_button(label).on_click(clicked)

    def pressed(self, *anew: Key) -> Key | None:
        """Returns the next key of the page or the terminal, or None; see `Keys`.

        `Key.TAKE_OVER` in `anew` says that a person leads.
        """
        self._execute()
        key = self._of_page(_OF_PERSON if Key.TAKE_OVER in anew else _OF_POLICY)
        return key or self._terminal.pressed(*anew)

    def wait(self, *keys: Key) -> Key:
        """Waits for one of these keys."""
        while True:
            self._execute()
            self.show()
            key = self._of_page(_OF_REST) or self._terminal.pressed(*keys)
            if key is not None and key in keys:
                return key
            time.sleep(_POLL_S)

    def wait_anew(self, *keys: Key) -> Key:
        """As `wait`, for a key that is pressed from now on."""
        while self._of_page(_OF_REST) or self._terminal.pressed(*keys) is not None:
            pass
        return self.wait(*keys)

    def _of_page(self, meanings: Mapping[str, Key]) -> Key | None:
        """Returns the next key of the page; of its words, those with a meaning count."""
        while not self._keys.empty():
            word = self._keys.get()
            key = word if isinstance(word, Key) else meanings.get(word)
            if key is not None:
                return key
        return None

    def _execute(self) -> None:
        """Executes the requests of visitors."""
        settled = [controls.settle for controls in self._arms if controls.settled]
        for request in [*(self._requests.get() for _ in range(self._requests.qsize())), *settled]:
            try:
                request()
                self._error = ""
            except ValueError as error:
                self._error = str(error)

    def show(self, states: Sequence[DeviceState] = ()) -> None:
        """Updates the page, some times a second, if there are visitors."""
        leaders = self.leaders
        state = states[-1] if states else self._device.latest()
        if not leaders.leading:
            leaders.steering.reset(state.command)
        if time.monotonic() < self._next_s or not self._server.get_clients():
            return
        self._next_s = time.monotonic() + _SHOW_S
        for controls in self._arms:
            controls.show()
        self._show_arms(state)
        self._show_images()
        self._status.content = "  \n".join(self._lines(state))

    def _lines(self, state: DeviceState) -> list[str]:
        who = "you lead" if self.leaders.leading else "the policy leads"
        why = [MESSAGES[reason] for reason in Reason if reason & state.reasons]
        notes = [self._error, *(controls.note() for controls in self._arms)]
        return [f"**{Mode(state.mode).name}**, {who}", *why, *(note for note in notes if note)]

    def _show_arms(self, state: DeviceState) -> None:
        capsules = self._embodiment.capsules(state.arms.position)
        ends = np.array([[capsule.start, capsule.end] for capsule in capsules])
        self._server.scene.add_line_segments(
            "/arms", ends, (90, 160, 250), thickness=6.0, thickness_units="screen"
        )

    def _show_images(self) -> None:
        for key, image in self._frames.frames().items():
            if not key.startswith("rgb/"):
                continue
            if key in self._images:
                self._images[key].image = image
            else:
                self._images[key] = self._server.gui.add_image(
                    image, label=key[4:], format="jpeg", jpeg_quality=JPEG_QUALITY
                )


@contextmanager
def open_page(
    port: int,
    device: DeviceProcess,
    embodiment: Embodiment,
    control_hz: float,
    frames: FrameSource,
    terminal: Keys,
) -> Iterator[tuple[TakeoverPage, str]]:
    """Serves the page to this machine; yields it with its address.

    Raises:
        ValueError: The port is in use, or viser is not installed.
    """
    server = open_server(HOST, port)
    try:
        page = TakeoverPage(server, device, embodiment, control_hz, frames, terminal)
        yield page, f"http://{HOST}:{server.get_port()}"
    finally:
        close_server(server)


_LABELS = (Key.SUCCESS, Key.FAILURE, Key.DISCARD)
_NEXT = (Key.START, Key.INSTRUCTION, Key.END)


@dataclass(frozen=True)
class Operator:
    """The operator's side of a session.

    Attributes:
        keys: Keys of the terminal, and of the page.
        leaders: Leader arms, or the page in their place; None without takeovers.
        page: The page.
    """

    keys: TerminalKeys | TakeoverPage
    leaders: Teleoperation | None = None
    page: TakeoverPage | None = None


def open_operator(
    settings: DeploymentSettings, factory: RobotFactory, robot: ArmedRobot, stack: ExitStack
) -> Operator:
    """Opens the keys, and the leaders or the page; the stack ends them."""
    device = robot.device
    keys = stack.enter_context(TerminalKeys(held=robot.held))
    if settings.take_over is None:
        return Operator(keys)
    if settings.take_over != PAGE:
        return Operator(keys, connect_leaders(factory, device, stack)[0])
    hz = settings.robot.control_hz
    page, address = stack.enter_context(
        open_page(settings.page_port, device, factory.embodiment, hz, robot.frames, keys)
    )
    print_line(f"Open {address} in a browser of this machine to take over.")
    leaders = Teleoperation(page.leaders, device, factory.embodiment, control_hz=hz)
    return Operator(page, leaders, page)


@dataclass
class OperatedSession:
    """The episodes of a session.

    Attributes:
        operator: The operator.
        home: Brings the arms to where an episode begins; returns whether they have arrived.
        episodes: Number of episodes.
        instructions: Instructions among which the operator changes; the first is the first one's.
        number: Number of the present episode, from 0.
        attempts: Labelled episodes.
    """

    operator: Operator
    home: Callable[[], bool]
    episodes: int
    instructions: Sequence[str]
    number: int = field(default=-1, init=False)
    attempts: list[Attempt] = field(default_factory=list, init=False)
    _chosen: int = field(default=0, init=False)

    @property
    def instruction(self) -> str:
        """The present instruction."""
        return self.instructions[self._chosen % len(self.instructions)]

    def begins_another(self) -> bool:
        """Returns whether another episode follows; the operator starts all but the first."""
        self.number += 1
        if self.number >= self.episodes:
            return False
        return self.number == 0 or not self.operator.keys.available or self._started()

    def _started(self) -> bool:
        keys = self.operator.keys
        asked = "; ".join(OPERATOR_MESSAGES[key] for key in _NEXT)
        while True:
            print_line(
                f"The arms hold. Episode {self.number + 1} of {self.episodes}, "
                f"{self.instruction!r}. {asked}."
            )
            key = keys.wait_anew(*_NEXT)
            if key is Key.INSTRUCTION:
                self._chosen += 1
            elif key is Key.END:
                return False
            elif self.home():
                return True

    def label(self, judged: bool | None, *, helped: bool) -> tuple[bool | None, bool]:
        """Returns whether an episode succeeded, None if unknown, and whether it is kept.

        The operator of several episodes decides; without keys, the world of emulated arms.
        """
        if self.episodes == 1:
            return judged, True
        success = judged
        if self.operator.keys.available:
            print_line(f"{'; '.join(OPERATOR_MESSAGES[key] for key in _LABELS)}; q: no label.")
            key = self.operator.keys.wait_anew(*_LABELS, Key.END)
            if key is Key.DISCARD:
                return None, False
            success = {Key.SUCCESS: True, Key.FAILURE: False}.get(key)
        self.attempts.append(Attempt(self.instruction, success, helped))
        return success, True

    def report(self) -> None:
        """Prints the success rates of several episodes."""
        if any(attempt.success is not None for attempt in self.attempts):
            print_line(attempts_table(self.attempts))
