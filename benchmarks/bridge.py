"""Costs of the robot bridges beside reference libraries, and jitter of the device process.

    python benchmarks/bridge.py --json bridge.json

Names:
    cycle/dynamixel/<ours|dynamixel_sdk>
        Milliseconds of this process's processor time per bus cycle with nine servos: a sync read of
        current, velocity and position (10 bytes) of all nine, decoded, and a sync write of seven
        goals; peer `dynamixel_sdk`, ratio of times. The limit of ours is 0.3 ms.
    cycle_wall/dynamixel/<ours|dynamixel_sdk>
        The same by the clock, which includes the emulator's time.
    loop/aloha/<cycle|jitter|late>
        The device process with two emulated arms that move: median time from one cycle to the next
        (ms), the 99th percentile of its deviation from the period (ms), and skipped cycles; peer
        `none`.
    decode|encode|answered/<fri|lcm>/...
        KUKA's arms, by `benchmarks/fri.py` and `benchmarks/lcm.py`, each in a process of its own;
        `--only` selects parts.
    filter/...
        Time of a cycle of the safety filter, by `benchmarks/filter_cycle.py`.

The servos are emulated in a process of their own, without line time: a real line at 1 Mbit/s adds
2.8 ms per cycle. Rounds of both drivers are interleaved in one run, each driver on an arm of its
own; the median over rounds counts.
"""

import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dynamixel_sdk
import numpy as np
from bridge_parts import show
from measurement import FOLDER, Row, parser_of, row

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.bus import Bus, sync_read
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.limits import SafetyLimits

IDENTS = [servo.ident for servo in VIPERX]
MASTERS = [servo.ident for servo in VIPERX if servo.master is None]
FIRST, SIZE = table.PRESENT_CURRENT.address, 10
MOTION = struct.Struct("<hii")
PERIOD_S = 0.01
PARTS = ("dynamixel", "fri", "lcm", "filter")
Motions = list[tuple[int, int, int]]


class Ours:
    """A bus cycle with this project's driver."""

    def __init__(self, port: str) -> None:
        self._bus = Bus(port)
        self._bus.open()

    def cycle(self, goal: int) -> Motions:
        """Reads all servos, sends a goal to all masters, and returns the motions."""
        answers = sync_read({self._bus: IDENTS}, FIRST, SIZE, 0.2)[self._bus]
        found = [MOTION.unpack(answers[ident].data) for ident in IDENTS]
        data = table.GOAL_POSITION.pack(goal)
        self._bus.send(
            protocol.sync_write(table.GOAL_POSITION.address, dict.fromkeys(MASTERS, data))
        )
        return found

    def close(self) -> None:
        """Closes the port."""
        self._bus.close()


class Sdk:
    """The same cycle with the vendor's package."""

    def __init__(self, port: str) -> None:
        self._port = dynamixel_sdk.PortHandler(port)
        packets = dynamixel_sdk.PacketHandler(2.0)
        assert self._port.openPort()
        assert self._port.setBaudRate(1_000_000)
        self._reader = dynamixel_sdk.GroupSyncRead(self._port, packets, FIRST, SIZE)
        self._writer = dynamixel_sdk.GroupSyncWrite(
            self._port, packets, table.GOAL_POSITION.address, table.GOAL_POSITION.size
        )
        for ident in IDENTS:
            assert self._reader.addParam(ident)
        for ident in MASTERS:
            assert self._writer.addParam(ident, bytes(4))

    def cycle(self, goal: int) -> Motions:
        """Reads all servos, sends a goal to all masters, and returns the motions."""
        assert self._reader.txRxPacket() == dynamixel_sdk.COMM_SUCCESS
        found = [
            (
                _signed(self._get(ident, 0, 2), 2),
                _signed(self._get(ident, 2, 4), 4),
                _signed(self._get(ident, 6, 4), 4),
            )
            for ident in IDENTS
        ]
        data = table.GOAL_POSITION.pack(goal)
        for ident in MASTERS:
            self._writer.changeParam(ident, data)
        assert self._writer.txPacket() == dynamixel_sdk.COMM_SUCCESS
        return found

    def _get(self, ident: int, offset: int, size: int) -> int:
        return int(self._reader.getData(ident, FIRST + offset, size))

    def close(self) -> None:
        """Closes the port."""
        self._port.closePort()


def _signed(value: int, size: int) -> int:
    return value - (1 << 8 * size) if value >= 1 << (8 * size - 1) else value


def measure_cycles(rounds: int, cycles: int) -> dict[str, tuple[float, float]]:
    """Returns milliseconds of processor time and of the clock per cycle, by driver."""
    took: dict[str, list[tuple[float, float]]] = {"ours": [], "dynamixel_sdk": []}
    with Emulator(plant="first_order") as emulator:
        ours, sdk = Ours(emulator.ports["left"]), Sdk(emulator.ports["right"])
        drivers: dict[str, Callable[[int], Motions]] = {
            "ours": ours.cycle,
            "dynamixel_sdk": sdk.cycle,
        }
        if ours.cycle(2048) != sdk.cycle(2048):
            raise SystemExit("The drivers read different motions.")
        for _ in range(rounds):
            for name, cycle in drivers.items():
                processor, clock = time.process_time(), time.perf_counter()
                for _ in range(cycles):
                    cycle(2048)
                passed = time.process_time() - processor, time.perf_counter() - clock
                took[name].append((1e3 * passed[0] / cycles, 1e3 * passed[1] / cycles))
        ours.close()
        sdk.close()
    return {
        name: (
            statistics.median(one for one, _ in found),
            statistics.median(one for _, one in found),
        )
        for name, found in took.items()
    }


def measure_loop(seconds: float) -> tuple[float, float, int]:
    """Returns median cycle time (ms), 99th percentile of its deviation (ms), and late cycles."""
    times: dict[int, float] = {}
    with Emulator(plant="first_order") as emulator:
        driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0)
        with DeviceProcess(
            driver,
            ALOHA,
            SafetyLimits.of(ALOHA, soft_start_s=0.0, cartesian_speed=None),
            period_s=PERIOD_S,
        ) as device:
            device.connect()
            device.arm()
            device.begin()
            before, end = device.latest().late, time.monotonic() + seconds
            while time.monotonic() < end:
                due = time.monotonic() + 0.02 * np.arange(50, dtype=np.float64)
                way = np.tile(ALOHA.home, (50, 1))
                way[:, 0] = 0.3 * np.sin(due)
                device.send(ActionChunk(due, way.astype(np.float32)))
                time.sleep(0.2)
                for state in device.recent():
                    times.setdefault(state.tick, state.arms.time)
            late = device.latest().late - before
    ticks = sorted(times)[1:]
    between = [1e3 * (times[tick] - times[tick - 1]) for tick in ticks if tick - 1 in times]
    jitter = float(np.percentile(np.abs(np.array(between) - 1e3 * PERIOD_S), 99))
    return statistics.median(between), jitter, late


def measure_dynamixel(rounds: int, cycles: int, seconds: float) -> list[Row]:
    """Returns the costs of the servo bus and the timing of its device process."""
    found = measure_cycles(rounds, cycles)
    peer = found["dynamixel_sdk"]
    rows = [
        row(f"{kind}/dynamixel/{name}", took[i], "ms", "dynamixel_sdk", took[i] / peer[i])
        for i, kind in enumerate(("cycle", "cycle_wall"))
        for name, took in found.items()
    ]
    units = {"cycle": "ms", "jitter": "ms", "late": "cycles"}
    measured = zip(units.items(), measure_loop(seconds), strict=True)
    return rows + [row(f"loop/aloha/{name}", value, unit) for (name, unit), value in measured]


def measure_script(part: str, *settings: str) -> list[Row]:
    """Runs another script of this folder in a process of its own and returns its results."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{part}.json"
        command = [sys.executable, str(FOLDER / f"{part}.py"), *settings, "--json", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found: list[Row] = json.loads(file.read_text())
    return found


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each driver and codec")
    parser.add_argument("--cycles", type=int, default=200, help="bus cycles per round")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="duration of the device process"
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), help="measured parts"
    )
    given = parser.parse_args()
    entries: list[Row] = []
    for part in given.only:
        if part == "dynamixel":
            entries += measure_dynamixel(given.rounds, given.cycles, given.seconds)
        elif part == "filter":
            entries += measure_script("filter_cycle")
        else:
            settings = "--rounds", str(given.rounds), "--seconds", str(given.seconds)
            entries += measure_script(part, *settings)
    show(entries, given.json)


if __name__ == "__main__":
    main()
