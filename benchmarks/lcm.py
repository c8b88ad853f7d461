"""Costs of drake-iiwa-driver's messages beside lcm-gen's, and the share answered in time.

    python benchmarks/lcm.py --json lcm.json

Names:
    decode/lcm/<ours|lcm_gen>
        Microseconds of processor time to decode a status of seven joints and read the measured
        positions; peer `lcm_gen`, ratio of times. Both are in Python; ours also refuses values that
        are not numbers, and messages of other arms.
    encode/lcm/<ours|lcm_gen>
        The same to encode a command of seven joints.
    answered/lcm/<one|two>/<10|5>ms
        Share of the steps of the program that a new command of the device process preceded, counted
        by the emulator over multicast on the loopback while the arms move; peer `none`. With two
        arms of one program the steps of the first one count. The emulator is a Python process too,
        and itself late on a busy machine.

Rounds of both codecs are interleaved in one run; the median over rounds counts.
"""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge_parts import measure_answers, run
from measurement import Row

from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.drivers.lcm.drake_messages import IIWA_COMMAND, IIWA_STATUS, IiwaStatus
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.lcm_link import LcmType
from stringline.real_robot.emulators.program.emulator_client import LcmEmulator

JOINTS = tuple(0.1 * index for index in range(7))


def generated(kind: LcmType, folder: Path) -> Any:
    """Returns lcm-gen's class of a type."""
    sizes = [
        f"{member.kind} {member.name}{f'[{member.size}]' if member.size else ''};"
        for member in kind.members
    ]
    file = folder / f"{kind.name}.lcm"
    file.write_text(f"package drake;\nstruct {kind.name} {{ {' '.join(sizes)} }}\n")
    program = Path(sys.executable).with_name("lcm-gen")
    subprocess.run(
        [program, "--python", "--ppath", str(folder), str(file)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    spec = importlib.util.spec_from_file_location(
        f"made_{kind.name}", folder / "drake" / f"{kind.name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kind.name)


def jobs() -> dict[str, Callable[[], object]]:
    """Returns the timed functions by name."""
    with tempfile.TemporaryDirectory() as folder:
        status, command = (generated(kind, Path(folder)) for kind in (IIWA_STATUS, IIWA_COMMAND))
    data = IIWA_STATUS.encode(
        {"utime": 5, **{member.name: JOINTS for member in IIWA_STATUS.members if member.size}}
    )

    def decode_ours() -> object:
        return tuple(IiwaStatus.of(data, 1).arms[0].measured.tolist())

    def decode_theirs() -> object:
        return tuple(status.decode(data).joint_position_measured)

    def encode_ours() -> object:
        return IIWA_COMMAND.encode({"utime": 7, "joint_position": JOINTS})

    def encode_theirs() -> object:
        made = command()
        made.utime, made.num_joints, made.joint_position = 7, len(JOINTS), JOINTS
        return made.encode()

    if decode_ours() != decode_theirs() or encode_ours() != encode_theirs():
        raise SystemExit("The codecs give different results.")
    found = {"decode/lcm/ours": decode_ours, "decode/lcm/lcm_gen": decode_theirs}
    return found | {"encode/lcm/ours": encode_ours, "encode/lcm/lcm_gen": encode_theirs}


def answers(arms: str, period_ms: int, seconds: float) -> Row:
    """Returns the share of steps that a new command preceded."""
    embodiment = {"one": IIWA14, "two": IIWA14_BIMANUAL}[arms]
    with LcmEmulator(arms=arms, device_hz=1000 / period_ms, t1_unlimited=True) as emulator:
        driver = LcmDriver(emulator.ports, period_s=1e-3 * period_ms)
        name = f"answered/lcm/{arms}/{period_ms}ms"
        return measure_answers(name, driver, embodiment, period_ms, seconds, emulator.report)


if __name__ == "__main__":
    run(__doc__ or "", jobs, "lcm_gen", answers)
