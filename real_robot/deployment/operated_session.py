"""A session of several episodes with the policy loaded: the operator starts, labels and discards.

It is the evaluation of a policy on arms without a judge: at its end the session has the success
rates of the policy alone, in which an episode with a takeover is no success.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from stringline.real_robot.deployment.deployment_settings import PAGE, DeploymentSettings
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.deployment.takeover_page import TakeoverPage, open_page
from stringline.real_robot.deployment.teleop_deployment import connect_leaders
from stringline.real_robot.operator.live_status import print_line
from stringline.real_robot.operator.operator_keys import MESSAGES, Key, TerminalKeys
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot
from stringline.sim.evaluation.results import attempts_table
from stringline.sim.statistics.attempts import Attempt

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
        asked = "; ".join(MESSAGES[key] for key in _NEXT)
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
            print_line(f"{'; '.join(MESSAGES[key] for key in _LABELS)}; q: no label.")
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
