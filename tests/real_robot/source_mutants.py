"""Guards that act in processes of their own, for mutation tests: changed lines in a copied tree.

Device processes, input lines and servers import the package anew. So these mutants change a line of
a file in a copy of the repository, where the tests then run.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
REMOTE, DEVICE = "policies/remote", "real_robot/device"
SERVER_TESTS = tuple(
    f"../policies/remote/{name}.py" for name in ("test_access", "test_server", "test_floods")
)
YAML_TESTS = ("../datasets/files/test_limits.py",)
SOURCE_SUITES = {
    "server: ": SERVER_TESTS,
    "yaml: ": YAML_TESTS,
    "frame: ": ("drivers/fri/test_fri_frame.py",),
    "line: ": ("operator/test_input_line.py",),
    "pedal: ": ("device/test_controller_input.py",),
    "priority: ": ("device/test_scheduling.py",),
    "restart: ": ("device/test_brown_outs.py",),
    "lost goals: ": ("drivers/dynamixel/test_poor_lines.py",),
    "closed: ": ("safety/test_sound_state.py",),
    "error: ": ("device/test_error_in_a_cycle.py",),
    "page: ": ("../sim/teleop/test_page_floods.py",),
    "kill: ": ("../datasets/editing/test_kills.py",),
    "process: ": (
        "device/test_motion_inputs.py",
        "safety/test_cell.py",
        "device/test_liveness.py",
    ),
}


@dataclass(frozen=True)
class SourceGuard:
    """A guard: text of a file that occurs once, and what replaces it."""

    file: str
    text: str
    instead: str

    def removed(self, source: str) -> str:
        """Returns a file without the guard.

        Raises:
            ValueError: The text does not occur once.
        """
        if source.count(self.text) != 1:
            raise ValueError(
                f"{self.file} has {self.text!r} {source.count(self.text)} times; allowed: once."
            )
        return source.replace(self.text, self.instead)


def _never(file: str, condition: str) -> SourceGuard:
    """Returns the guard of an `if`."""
    return SourceGuard(file, f"if {condition}:", "if False:")


def _open(stage: str, comparison: str) -> SourceGuard:
    """Returns the guard of a comparison with a limit, which NaN then passes."""
    value, limit = comparison.split(" <= ")
    return SourceGuard(f"real_robot/safety/{stage}.py", f"not {comparison}:", f"{value} > {limit}:")


SOURCE_GUARDS = {
    "closed: stop line": _open(
        "robot_stages", "cycle.freshness.stop_line_age_s <= self.limits.oldest_stop_line_s"
    ),
    "closed: permission": _open(
        "robot_stages", "cycle.freshness.permission_age_s <= self.limits.oldest_permission_s"
    ),
    "closed: supervisor": _open(
        "target_stages", "cycle.freshness.supervisor_age_s <= self.limits.oldest_heartbeat_s"
    ),
    "closed: cameras": SourceGuard(
        "real_robot/safety/target_stages.py", "if not age <= limit", "if age > limit"
    ),
    "closed: actions": SourceGuard(
        "real_robot/safety/target_stages.py",
        "in_time = cycle.freshness.action_age_s <= self.limits.oldest_action_s",
        "in_time = not cycle.freshness.action_age_s > self.limits.oldest_action_s",
    ),
    "closed: plans": _open("target_stages", "age_s <= self.limits.oldest_plan_s"),
    "closed: states": _open(
        "robot_stages", "age_s <= _OLDEST_STATE_PERIODS * self.period_s + _ROUNDING_S"
    ),
    "closed: efforts": SourceGuard(
        "real_robot/safety/robot_stages.py",
        "~(np.abs(cycle.state.effort) <= self.limits.effort)",
        "np.abs(cycle.state.effort) > self.limits.effort",
    ),
    "closed: temperatures": SourceGuard(
        "real_robot/safety/robot_stages.py",
        "if not warmest < self.limits.fault_temperature:",
        "if warmest >= self.limits.fault_temperature:",
    ),
    "closed: gaps": _open("motion_stages", "gap_s <= self.limits.longest_gap_s"),
    "closed: images of a chunk": SourceGuard(
        "real_robot/safety/target_stages.py", "is_age(arrival.image_age_s) and ", ""
    ),
    "lost goals: reported": SourceGuard(
        "real_robot/drivers/dynamixel/aloha_driver.py", ", kept_goals=kept)", ")"
    ),
    "lost goals: gone on from": SourceGuard(
        "real_robot/safety/motion_stages.py", "cycle.limiter.restart(lost, kept)", "pass"
    ),
    "lost goals: for long": _never(
        "real_robot/safety/motion_stages.py", "not age_s <= self.limits.longest_gap_s"
    ),
    "error: braking": SourceGuard(
        f"{DEVICE}/device_worker.py", "                self._brake_blindly()\n", ""
    ),
    "error: the command before": SourceGuard(
        f"{DEVICE}/device_loop.py",
        "command = self._unsent or self._filter.brake()",
        "command = self._filter.brake()",
    ),
    "page: size of messages": SourceGuard(
        "sim/teleop/page_server.py", '"max_size": LARGEST_MESSAGE', '"max_size": None'
    ),
    "page: origins": _never(
        "sim/teleop/page_server.py",
        "(refusal := access.refusal(request.headers, sent, page=True)) is not None",
    ),
    "kill: what an archive left": SourceGuard(
        "datasets/editing/archive.py",
        'remote.local.glob(f"{_PACKED}*")',
        "()",
    ),
    "server: origins": _never(f"{REMOTE}/access.py", "origin not in allowed"),
    "server: hosts": _never(f"{REMOTE}/access.py", "not self._is_known(host)"),
    "server: token": SourceGuard(
        f"{REMOTE}/access.py",
        "self.token is not None and not hmac",
        'self.token == "" and not hmac',
    ),
    "server: token without TLS": _never(
        f"{REMOTE}/access.py", "self.token is not None and self.tls is None"
    ),
    "server: token of a client without TLS": _never(
        f"{REMOTE}/access.py", 'parts.scheme != "wss" and parts.hostname not in LOCAL'
    ),
    "server: mode of private files": _never(f"{REMOTE}/access.py", "status.st_mode & 0o077"),
    "server: owner of private files": _never(
        f"{REMOTE}/access.py", "status.st_uid not in (0, os.geteuid())"
    ),
    "server: length of tokens": SourceGuard(
        f"{REMOTE}/access.py", "SHORTEST_TOKEN = 32", "SHORTEST_TOKEN = 0"
    ),
    "server: size of messages": SourceGuard(
        f"{REMOTE}/server.py",
        "max_size=largest_request(self._policy.contract)",
        "max_size=None",
    ),
    "server: fragments": SourceGuard(
        f"{REMOTE}/server.py", "MOST_FRAGMENTS = 64", "MOST_FRAGMENTS = 1 << 40"
    ),
    "server: entries of messages": SourceGuard(
        f"{REMOTE}/protocol.py", "REQUEST_ENTRIES = 8192", "REQUEST_ENTRIES = 1 << 30"
    ),
    "server: lists in messages": SourceGuard(
        f"{REMOTE}/protocol.py", "REQUEST_LIST = 64", "REQUEST_LIST = 1 << 30"
    ),
    "server: one request at a time": SourceGuard(
        f"{REMOTE}/server.py",
        "if receiving.done():\n                    receiving.result()",
        "if False:\n                    receiving.result()",
    ),
    "server: answers to pings": SourceGuard(
        f"{REMOTE}/server.py", "MOST_PONG_BYTES = 65536", "MOST_PONG_BYTES = 1 << 40"
    ),
    "server: idle clients": SourceGuard(
        f"{REMOTE}/server.py", "return not self.waits and", "return False and"
    ),
    "server: clients that have asked": SourceGuard(
        f"{REMOTE}/server.py", "IDLE_S = 10.0", "IDLE_S = -1.0"
    ),
    "server: number of clients": _never(f"{REMOTE}/server.py", "len(self._taken) >= self.count"),
    "server: turns": _never(f"{REMOTE}/server.py", "self._taken"),
    "server: pauses": SourceGuard(
        f"{REMOTE}/server.py", "PAUSE_WEIGHT = 50.0", "PAUSE_WEIGHT = 1e-9"
    ),
    "server: longest lead": SourceGuard(
        f"{REMOTE}/server.py",
        "min(PAUSE_WEIGHT * pause_s, LONGEST_LEAD_S)",
        "PAUSE_WEIGHT * pause_s",
    ),
    "yaml: nodes": _never("datasets/files/limits.py", "count > MOST_NODES"),
    "yaml: depth": _never("datasets/files/limits.py", "self._depth == DEEPEST"),
    "yaml: cycles": _never("datasets/files/limits.py", "not counts[node]"),
    "yaml: bytes": _never("datasets/files/limits.py", "len(data) > MOST_YAML_BYTES"),
    "yaml: keys given twice": _never("datasets/files/limits.py", "name in lines"),
    "yaml: written nodes": _never("datasets/files/limits.py", "self._written > MOST_WRITTEN"),
    "process: obstacles before torque": SourceGuard(
        f"{DEVICE}/device_worker.py", "                self._check_cell()\n", ""
    ),
    "priority: of real arms": SourceGuard(
        f"{DEVICE}/device_worker.py",
        "setup.priority is Priority.REQUIRED and not setup.lock_step",
        "False",
    ),
    "priority: in the checks": _never(
        "real_robot/robots/robot_factory.py",
        "self._priority(moving=moving) is Priority.REQUIRED",
    ),
    "process: hold flag": _never(f"{DEVICE}/device_worker.py", "self._setup.hold.value"),
    "process: inputs": SourceGuard(
        f"{DEVICE}/device_worker.py",
        "input_ages_s=None if setup.lock_step else setup.inputs.ages_s",
        "input_ages_s=None",
    ),
    "process: first beat": SourceGuard(
        f"{DEVICE}/device_process.py",
        "self._setup.pulse.value = time.monotonic() + _START_S - _UNRESPONSIVE_S",
        "pass",
    ),
    "process: silent state": SourceGuard(
        f"{DEVICE}/device_process.py",
        "state.silent() if self.silence_s > _SILENT_S else state",
        "state",
    ),
    "restart: reset brings up": SourceGuard(
        f"{DEVICE}/device_worker.py", "if not acknowledged & _RESTORED or not", "if True or not"
    ),
    "restart: on the way": SourceGuard(
        "real_robot/execution/approach.py", "if not self._reset(fault.reasons):", "if True:"
    ),
    "restart: grippers of leaders": SourceGuard(
        "real_robot/deployment/leader_teleoperation.py",
        "self._allowed[grippers] = agree_opening",
        "self._allowed[grippers] = math.inf",
    ),
    "restart: leaders hold": SourceGuard(
        "real_robot/deployment/leader_teleoperation.py",
        "gone = leader.lost.any() or _restarted(leader).any()",
        "gone = leader.lost.any()",
    ),
    "frame: length": _never(
        "real_robot/drivers/fri/versions.py",
        "size < 0 or _NUMBER.unpack_from(datagram)[0] != size",
    ),
    "frame: checksum": _never(
        "real_robot/drivers/fri/versions.py",
        "_NUMBER.unpack_from(datagram, _NUMBER.size + size)[0] != zlib.crc32(message)",
    ),
    "line: characters": SourceGuard(
        "real_robot/operator/input_line.py", "set(data) == set(_ALIVE)", "bool(data)"
    ),
    "pedal: stuck": SourceGuard(
        "real_robot/drivers/fri/controller_io.py", "if held and self._was_released", "if held"
    ),
    "pedal: released": SourceGuard(
        "real_robot/drivers/fri/controller_io.py",
        "else 0.0",
        "else self._permission.value",
    ),
    "pedal: missing input": SourceGuard(
        "real_robot/drivers/fri/fri_arm.py", "self._run_input.problem(message.inputs)", '""'
    ),
    "line: inactive": SourceGuard(
        "real_robot/operator/input_line.py", "bool(_modem_lines(port) & line)", "True"
    ),
}


class CopiedTree:
    """A copy of the repository in which one guard is missing at a time.

    Attributes:
        root: Its folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def without(self, guard: SourceGuard) -> Iterator[None]:
        """Removes a guard."""
        file = self.root / guard.file
        source = file.read_text(encoding="utf-8")
        file.write_text(guard.removed(source), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(source, encoding="utf-8")


@contextmanager
def copied_tree() -> Iterator[CopiedTree]:
    """Copies the repository for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        left_out = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "runs", "site", "videos")
        shutil.copytree(ROOT, root, symlinks=True, ignore=left_out)
        yield CopiedTree(root)
