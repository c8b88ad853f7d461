"""Mutation tests: without a stage of the safety filter, or a guard of a driver, a test must fail.

Chunk rules, stages, obstacles and the bounds of the limiter are removed one at a time, each in
another process that runs the tests of the filter until the first failure. The same is done with the
guards of the drivers of servos, FRI, LCM and grippers, with their own tests. Guards that act in
processes of their own are removed in a copy of the repository (`source_mutants.py`). A part without
a failing test has no effect, or lacks a test. `make mutate` tries all parts, those whose tests
wait for clocks beside the others; `python -m tests.real_robot.mutate WORD ...` those whose name has
one of the words.
"""

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.cell_mutants import CELL_GUARDS
from tests.real_robot.device_mutants import DEVICE_GUARDS
from tests.real_robot.input_mutants import INPUT_GUARDS
from tests.real_robot.kuka_mutants import FRI_GUARDS, GRIPPER_GUARDS, LCM_GUARDS
from tests.real_robot.servo_mutants import servo_mutants
from tests.real_robot.source_mutants import SOURCE_GUARDS, SOURCE_SUITES, copied_tree

from stringline.real_robot.driver_interface.interlocks import FIRST_STOP, Interlock
from stringline.real_robot.drivers.fri import fri_arm
from stringline.real_robot.drivers.fri import fri_arm as fri_session
from stringline.real_robot.drivers.fri import messages as fri_inbox
from stringline.real_robot.drivers.fri.fri_arm import Answers, FriArm, Playback
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.kuka import kuka_arm, kuka_driver
from stringline.real_robot.drivers.lcm import drake_messages as status
from stringline.real_robot.drivers.lcm import drake_program as driver_messages
from stringline.real_robot.drivers.lcm import drake_program as lcm_arm
from stringline.real_robot.drivers.lcm.drake_messages import ArmReport, StatusInbox
from stringline.real_robot.drivers.lcm.drake_program import DrakeProgram, LcmArm
from stringline.real_robot.safety import filter as safety
from stringline.real_robot.safety import stage_context
from stringline.real_robot.safety.keep_clear import KeepClear
from stringline.real_robot.safety.limiter import MotionLimiter
from stringline.real_robot.safety.motion_stages import CartesianSpeed, MotionLimits
from stringline.real_robot.safety.stage_context import Cycle, StatelessStage

ROOT = Path(__file__).parents[2]
SERVOS, FRI, LCM, GRIPPER = "servos: ", "FRI ", "LCM ", "gripper: "
CELL, INPUT, DEVICE = "cell: ", "input: ", "device: "
PREFIXES = (SERVOS, FRI, LCM, GRIPPER, CELL, INPUT, DEVICE, *SOURCE_SUITES)
SUITES = {
    **SOURCE_SUITES,
    "": (
        "safety/test_filter.py",
        "safety/test_gaps.py",
        "safety/test_robot_stages.py",
        "safety/test_cell.py",
        "safety/test_keep_clear.py",
        "safety/test_cartesian_speed.py",
        "safety/test_effort.py",
        "safety/test_limiter.py",
        "safety/test_filter_properties.py",
        "safety/test_sound_state.py",
    ),
    SERVOS: (
        "drivers/dynamixel/test_bring_up.py",
        "drivers/dynamixel/test_dynamixel_driver.py",
        "drivers/dynamixel/test_protocol.py",
        "drivers/dynamixel/test_leaders.py",
        "drivers/dynamixel/test_kept_grip.py",
        "safety/test_fault_table.py",
        "deployment/test_modes_of_deployment.py",
        "device/test_brown_outs.py",
    ),
    FRI: ("drivers/fri/test_fri_driver.py", "drivers/fri/test_fri_faults.py"),
    LCM: (
        "emulators/lcm/test_lcm_program.py",
        "drivers/lcm/test_lcm_driver.py",
        "emulators/lcm/test_lcm_faults.py",
        "drivers/lcm/test_poor_networks.py",
    ),
    CELL: (
        "safety/test_cell.py",
        "safety/test_clearance.py",
        "safety/test_published_meshes.py",
        "safety/test_adversarial_cells.py",
    ),
    GRIPPER: ("drivers/fri/test_gripper_outputs.py", "drivers/lcm/test_gripper_wsg.py"),
    INPUT: (
        "operator/test_held_key.py",
        "robots/test_deliberate_start.py",
        "emulators/fri/test_fri_emulator.py",
    ),
    DEVICE: (
        "safety/test_limits.py",
        "safety/test_gaps.py",
        "drivers/fri/test_fri_frame.py",
        "operator/test_input_line.py",
        "device/test_motion_inputs.py",
        "device/test_scheduling.py",
        "device/test_late_commands.py",
        "device/test_liveness.py",
        "device/test_unsent_commands.py",
        "safety/test_kept_grips.py",
        "safety/test_soft_start.py",
        "safety/test_sound_state.py",
    ),
}
GUARDS = {
    GRIPPER: GRIPPER_GUARDS,
    CELL: CELL_GUARDS,
    INPUT: INPUT_GUARDS,
    DEVICE: DEVICE_GUARDS,
}
TIMEOUT_S = 600
# Suites that compute; the others mostly wait for the clocks of emulated arms, one at a time.
COMPUTED = ("", CELL)
Vector = NDArray[np.float64]


class Unlimited(StatelessStage):
    """The stage without the limits of motion: the arms jump."""

    def act(self, cycle: Cycle) -> None:
        """Goes to the target in one period."""
        if cycle.wanted is not None:
            cycle.speed = (cycle.wanted - cycle.limiter.position) / self.period_s


def without_stage(index: int) -> None:
    """Takes a stage out."""
    stages = list(safety.STAGES)
    if stages[index] is MotionLimits:
        stages[index] = Unlimited
    else:
        del stages[index]
    safety.STAGES = tuple(stages)


def without_rule(index: int) -> None:
    """Takes a rule of chunks out."""
    safety.CHUNK_RULES = tuple(rule for at, rule in enumerate(safety.CHUNK_RULES) if at != index)


def without_space(index: int) -> None:
    """Removes an obstacle."""
    stage_context.SPACES = tuple(
        space for at, space in enumerate(stage_context.SPACES) if at != index
    )


def without_room(self: MotionLimiter, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns bounds of the speed that do not depend on positions."""
    step, largest = scale * self._acceleration * self._period_s, scale * self._velocity
    return np.clip(self.speed - step, -largest, largest), np.clip(
        self.speed + step, -largest, largest
    )


def without_bound(name: str) -> None:
    """Removes one of the limiter's bounds."""
    if name == "room to stop":
        MotionLimiter._bounds = without_room  # type: ignore[method-assign]
        return
    build = MotionLimiter.__init__
    parts = ("lower", "upper", "velocity", "acceleration")

    def init(self: MotionLimiter, *limits: Any, **more: Any) -> None:
        changed = [
            1e6 * limit if part == name else limit
            for part, limit in zip(parts, limits, strict=False)
        ]
        build(self, *changed, *limits[len(parts) :], **more)

    MotionLimiter.__init__ = init  # type: ignore[assignment]


def ends_of(stopping: Callable[..., Vector]) -> Callable[..., Vector]:
    """Returns a stopping path with only the next pose and the one at rest."""
    return lambda *given: stopping(*given)[[0, -1]]


def first_period_of(steps: Callable[..., Vector]) -> Callable[..., Vector]:
    """Returns steps without those of the braking that follows the coming period."""
    return staticmethod(lambda *given: steps(*given)[:, :1])  # type: ignore[return-value]


def each_as_fast_as_it_may(self: KeepClear, cycle: Cycle, place: int, braked: Vector) -> Vector:
    """Returns the rest pose of an arm whose revolute joints do not wait for each other."""
    return np.where(
        self._own[place],
        cycle.limiter.stopping(cycle.speed, cycle.scale)[-1],
        cycle.limiter.position,
    )


def without_waiting() -> None:
    """Lets time pass for arms that cannot be sent a command."""
    commit = MotionLimiter.commit

    def always(self: MotionLimiter, speed: Vector, waits: object = False) -> Vector:
        return commit(self, speed)

    MotionLimiter.commit = always  # type: ignore[method-assign]


def without_rule_of(owner: Any, name: str, index: int) -> None:
    """Removes an entry of a tuple of rules."""
    setattr(owner, name, tuple(rule for at, rule in enumerate(getattr(owner, name)) if at != index))


def without_method(owner: Any, name: str, instead: Any) -> None:
    """Replaces a guard by something without effect."""
    setattr(owner, name, instead)


def without_notice(forgotten: Callable[[Interlock], bool]) -> None:
    """Drops events of an arm."""
    notice = FriArm._notice

    def selective(self: FriArm, event: Interlock) -> None:
        if not forgotten(event):
            notice(self, event)

    FriArm._notice = selective  # type: ignore[method-assign]


def without_reading_only(owner: Any) -> None:
    """Moves arms that are read-only."""
    build = owner.__init__

    def init(self: Any, *given: Any, **more: Any) -> None:
        build(self, *given, **{**more, "read_only": False})

    owner.__init__ = init


def fri_mutants() -> dict[str, Callable[[], None]]:
    """Returns the mutants of the driver over FRI by name."""
    found: dict[str, Callable[[], None]] = {}
    for owner, rules in ((fri_session, "RULES"), (fri_inbox, "CHECKS")):
        for index, rule in enumerate(getattr(owner, rules)):
            found[f"rule {rule.__name__}"] = functools.partial(without_rule_of, owner, rules, index)
    instead: dict[str, tuple[Any, str, Any]] = {
        "order of messages": (fri_inbox, "_newer", lambda *_: True),
        "source of messages": (FriLink, "_is_controller", lambda *_: True),
        "greeting": (FriArm, "problem", lambda *_: ""),
        "silence": (fri_arm, "_LOST_AFTER", 1 << 30),
        "seal": (kuka_driver, "checked", lambda command: command),
        "distance to the last command": (kuka_arm, "_FASTEST_RAD_S", np.inf),
        "distance to the arm": (fri_arm, "TRACKING_ERROR_RAD", np.inf),
        "where commands begin": (FriArm, "_begin_at", lambda *_: None),
        "answers that were lost": (Answers, "missed", lambda *_: None),
        "commands that cannot be sent": (FriArm, "accepts", True),
        "the controller's own position": (FriArm, "_idle_position", lambda _: (0.0,) * 7),
        "steps of another clock": (Playback, "_is_large", lambda *_: False),
        "end of a path": (FriArm, "_play", lambda self: self._playback.play()),
    }
    for name, (owner, attribute, value) in (instead | FRI_GUARDS).items():
        found[name] = functools.partial(without_method, owner, attribute, value)
    found["entering is reported"] = functools.partial(
        without_notice, lambda event: event is Interlock.ENTERED
    )
    found["past stops are reported"] = functools.partial(
        without_notice, lambda event: event >= FIRST_STOP
    )
    found["reading only"] = functools.partial(without_reading_only, FriArm)
    return {FRI + name: change for name, change in found.items()}


def lcm_mutants() -> dict[str, Callable[[], None]]:
    """Returns the mutants of the driver over LCM by name."""
    instead: dict[str, tuple[Any, str, Any]] = {
        "order of messages": (StatusInbox, "_is_old", lambda *_: False),
        "order of times": (StatusInbox, "_is_back", lambda *_: False),
        "what happens to a program": (StatusInbox, "_notice", lambda *_: None),
        "numbers": (status, "_MAY_BE_NAN", status._ROWS),
        "silence": (driver_messages, "_LOST_AFTER", 1 << 30),
        "guard time": (driver_messages, "_GUARD_US", 0),
        "other commanders": (driver_messages, "_FOREIGN_US", 0),
        "greeting": (DrakeProgram, "problem", lambda _: ""),
        "seal": (kuka_driver, "checked", lambda command: command),
        "distance to the last command": (kuka_arm, "_FASTEST_RAD_S", np.inf),
        "distance to the arm": (lcm_arm, "TRACKING_ERROR_RAD", np.inf),
        "following commands": (LcmArm, "_follows", lambda *_: True),
        "where commands begin": (LcmArm, "let_go", lambda _: None),
        "what happens to an arm": (LcmArm, "_notice", lambda *_: None),
        "motion of the controller": (ArmReport, "in_motion", True),
    }
    found: dict[str, Callable[[], None]] = {}
    for name, (owner, attribute, value) in (instead | LCM_GUARDS).items():
        found[name] = functools.partial(without_method, owner, attribute, value)
    found["reading only"] = functools.partial(without_reading_only, DrakeProgram)
    return {LCM + name: change for name, change in found.items()}


def mutants() -> dict[str, Callable[[], None]]:
    """Returns all mutants by name."""
    found: dict[str, Callable[[], None]] = {}
    for index, rule in enumerate(safety.CHUNK_RULES):
        found[f"rule {rule.__name__}"] = functools.partial(without_rule, index)
    for index, stage in enumerate(safety.STAGES):
        found[f"stage {stage.__name__}"] = functools.partial(without_stage, index)
    for index, space in enumerate(stage_context.SPACES):
        found[f"space {space.reason.name}"] = functools.partial(without_space, index)
    for name in ("velocity", "acceleration", "room to stop"):
        found[f"bound {name}"] = functools.partial(without_bound, name)
    ends = ends_of(MotionLimiter.stopping)
    found["poses on the way to the rest"] = functools.partial(
        without_method, MotionLimiter, "stopping", ends
    )
    along = functools.partial(
        without_method, KeepClear, "_along", lambda self, cycle, spare, least: (cycle.speed, spare)
    )
    found["along what is in the way"] = along
    found["hinges that go together"] = functools.partial(
        without_method, KeepClear, "_straight", each_as_fast_as_it_may
    )
    coming = first_period_of(CartesianSpeed._steps)
    found["speed while braking"] = functools.partial(
        without_method, CartesianSpeed, "_steps", coming
    )
    found["clearance of a slower motion"] = functools.partial(
        without_method, CartesianSpeed, "_stays_clear", lambda *_: True
    )
    found["waiting"] = without_waiting
    found["letting go"] = functools.partial(
        without_method, MotionLimiter, "settle", lambda self, _, scale: self.braking(scale)
    )
    servos = {SERVOS + name: change for name, change in servo_mutants().items()}
    guards = {
        prefix + name: functools.partial(without_method, *guard)
        for prefix, named in GUARDS.items()
        for name, guard in named.items()
    }
    return found | servos | fri_mutants() | lcm_mutants() | guards


def suite_of(name: str) -> str:
    """Returns the suite of tests of a mutant."""
    return next((suite for suite in PREFIXES if name.startswith(suite)), "")


class FirstFailure:
    """Remembers the first test that fails."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Stores the first failure."""
        if report.failed and not self.test:
            file, _, test = report.nodeid.partition("::")
            self.test = f"{Path(file).name}::{test}"


def run_without(name: str) -> int:
    """Runs the tests without a part, or with all parts of a suite; prints the result as JSON."""
    if name not in SUITES:
        mutants()[name]()
    seen = FirstFailure()
    files = [str(Path(__file__).parent / file) for file in SUITES[suite_of(name)]]
    # Resources that a failed test leaves open would end pytest with a trace instead of an answer.
    options = [
        "-q",
        "-x",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:unraisableexception",
        "-k",
        "not wire",
    ]
    code = pytest.main([*options, *files], plugins=[seen])
    sys.stdout.write("\n" + json.dumps({"code": int(code), "test": seen.test}) + "\n")
    return 0


def ask(name: str, root: Path = ROOT) -> tuple[int, str]:
    """Runs the tests in another process; returns pytest's exit code and the first failed test."""
    tests = subprocess.Popen(
        [sys.executable, "-m", "tests.real_robot.mutate", "--without", name],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / ".src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = tests.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(tests.pid, signal.SIGKILL)  # With all processes that the tests have started.
        tests.communicate()
        return int(pytest.ExitCode.TESTS_FAILED), f"(no end within {TIMEOUT_S} s)"
    try:
        answer = json.loads(output.strip().rpartition("\n")[2])
    except ValueError:
        raise SystemExit(f"The tests did not run without {name!r}:\n{output}{errors}") from None
    return int(answer["code"]), str(answer["test"])


def noticed(name: str, code: int, test: str) -> bool:
    """Prints which test noticed that a part is missing; returns whether one did."""
    found = code == pytest.ExitCode.TESTS_FAILED
    sys.stdout.write(f"without {name:<33} {test if found else 'NOTHING FAILS'}\n")
    sys.stdout.flush()
    return found


def missed_in_sources(names: list[str]) -> list[str]:
    """Removes guards in a copy of the repository; returns those that no test notices."""
    missed: list[str] = []
    if not names:
        return missed
    with copied_tree() as tree:
        for name in names:
            with tree.without(SOURCE_GUARDS[name]):
                missed += [] if noticed(name, *ask(suite_of(name), tree.root)) else [name]
    return missed


def missed_of(names: Sequence[str]) -> list[str]:
    """Tries mutants one after another; returns those that no test notices.

    Raises:
        SystemExit: The tests of one fail with everything in place.
    """
    for suite in sorted({suite_of(name) for name in names}):
        code, test = ask(suite)
        if code:
            failed = test or f"pytest ended with {pytest.ExitCode(code)!r}"
            raise SystemExit(f"The tests of {suite!r} fail with everything in place: {failed}")
    here = [name for name in names if name not in SOURCE_GUARDS]
    missed = [name for name in here if not noticed(name, *ask(name))]
    return missed + missed_in_sources([name for name in names if name in SOURCE_GUARDS])


def main(words: list[str]) -> int:
    """Tries all mutants, or those whose name has one of the words; 1 if no test fails for one."""
    found = [*mutants(), *SOURCE_GUARDS]
    names = [name for name in found if not words or any(word in name for word in words)]
    computed = [name for name in names if suite_of(name) in COMPUTED]
    clocked = [name for name in names if suite_of(name) not in COMPUTED]
    with ThreadPoolExecutor(2) as lanes:
        missed = [name for part in lanes.map(missed_of, (computed, clocked)) for name in part]
    sys.stdout.write(f"{len(names) - len(missed)} of {len(names)} noticed.\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(run_without(sys.argv[2]) if sys.argv[1:2] == ["--without"] else main(sys.argv[1:]))
