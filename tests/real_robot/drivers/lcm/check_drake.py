"""Comparison with drake: our driver moves an iiwa of drake's own classes at 200 Hz over LCM.

Run by `make interop`.

drake needs a separate environment, whose Python is the only argument; this script starts itself
there as the arm: drake's LCM interface, its receiver of commands and its sender of states, around
joints with a lag. They use the network interface of the multicast route, with a time to live of 0.
"""

import contextlib
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

GROUP, PORT = "239.255.76.67", 7671
PERIOD_S = 0.005
SECONDS = 8.0
LEAD_S = 12.0  # For the start of the driver, which the arm outlives.
LAG_S = 0.02
HOME = (0.0, 0.0, 0.0, -1.85, 0.0, 1.2916, 0.0)


def main() -> None:
    """The driver, or in drake's environment the arm."""
    if sys.argv[1] == "arm":
        run_arm(Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        check_motion(sys.argv[1], Path(folder) / "commands.npz")


def check_motion(python: str, file: Path) -> None:
    """Moves drake's iiwa from one side to the other and checks the commands that drake received."""
    from stringline.datasets.embodiments.iiwa14 import IIWA14
    from stringline.real_robot.device.device_process import DeviceProcess
    from stringline.real_robot.device.scheduling import Priority
    from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
    from stringline.real_robot.safety.limits import SafetyLimits
    from stringline.real_robot.safety.reasons import Mode

    limits = SafetyLimits.of(IIWA14, margin_rad=0.02, speed_share=0.25, acceleration=5.0)
    driver = LcmDriver(
        {"arm": f"{GROUP}:{PORT}"}, interface=multicast_interface(), period_s=PERIOD_S
    )
    command = [python, __file__, "arm", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as arm:
        assert arm.stdout is not None
        expect(arm.stdout.readline().strip() == "ready", "drake's arm starts")
        with DeviceProcess(
            driver, IIWA14, limits, period_s=PERIOD_S, priority=Priority.PREFERRED
        ) as device:
            device.connect()
            device.arm()
            device.begin()
            modes = []
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                device.send(swing(IIWA14.home))
                time.sleep(0.1)
                modes.append(device.latest().mode)
            faults = device.latest().fault_reasons
        expect(arm.wait(60.0) == 0, "drake's arm ends by itself")
    expect(not faults, f"the driver reports no fault {faults!r}")
    running = np.mean([mode is Mode.RUN for mode in modes])
    expect(running > 0.9, f"the arm runs ({running:.0%} of the time)")
    found = np.load(file)
    check_commands(found["received"], found["followed"], limits)


def swing(home: Any) -> Any:
    """Returns a plan of 50 Hz with steps that are too fast for the arm."""
    from stringline.policies.chunks.chunk import ActionChunk

    due = time.monotonic() + 0.02 * np.arange(50, dtype=np.float64)
    way = np.tile(home, (50, 1))
    way[:, 0] += 0.25 * np.sign(np.sin(np.pi * due / 2))
    return ActionChunk(due, way.astype(np.float32))


def check_commands(received: Any, followed: Any, limits: Any) -> None:
    """Checks the times and commands (N, 1 + 7) that drake received, and its positions (T, 7)."""
    moved = float(np.ptp(followed[:, 0]))
    # On a busy machine each gap in drake's states is a start from rest, which makes the arm slow.
    expect(moved > 0.1, f"drake's arm moves (axis 1 by {moved:.2f} rad, {len(received)} commands)")
    expect(np.array_equal(received[-1, 1:], followed[-1]), "to the last command")
    # The time of a command is that of the state that it answers: a multiple of the period, in whole
    # microseconds.
    seconds, *joints = np.diff(received, axis=0).T
    periods, steps = np.round(seconds / PERIOD_S), np.transpose(joints)
    expect(np.abs(seconds - periods * PERIOD_S).max() < 2e-6, "at the times of drake's states")
    # A command that would have missed its period was not sent: the arm held the one before, and
    # started again from rest within a period. Of two that drake read at once, it kept the second.
    most = 1.001 * limits.acceleration[:7] * PERIOD_S**2
    rested = (periods > 1) & (np.abs(steps) <= most).all(1)
    spans = PERIOD_S * np.where(rested, 1, periods)
    speeds = steps / spans[:, None]
    peak = float((np.abs(speeds) / limits.velocity[:7]).max())
    expect(peak < 1.001, f"within the limits of velocity ({peak:.3f} of them at most)")
    before = np.where(rested[1:, None], 0.0, speeds[:-1])
    between = np.where(rested[1:], PERIOD_S, (spans[1:] + spans[:-1]) / 2)
    changes = np.abs(speeds[1:] - before) / between[:, None]
    sharpest = float((changes / limits.acceleration[:7]).max())
    expect(sharpest < 1.001, f"within those of acceleration ({sharpest:.3f} of them at most)")
    punctual = float(np.mean(np.isclose(seconds, PERIOD_S, rtol=0.1)))
    expect(punctual > 0.9, f"at {1 / PERIOD_S:.0f} Hz ({punctual:.1%} of the commands)")


def multicast_interface() -> str:
    """Returns this computer's address on the network to which the group is routed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((GROUP, PORT))
        return str(probe.getsockname()[0])


def drakes_link(builder: Any, received: list[Any]) -> tuple[Any, Any]:
    """Adds drake's LCM to a diagram; returns the output with commands and the input for states.

    The time and the positions of each command are appended to `received`.
    """
    types = importlib.import_module("drake")
    systems = importlib.import_module("pydrake.systems.lcm")
    url = f"udpm://{GROUP}:{PORT}?ttl=0"
    connection = importlib.import_module("pydrake.lcm").DrakeLcm(url)
    lcm = builder.AddSystem(systems.LcmInterfaceSystem(connection))
    command = types.lcmt_iiwa_command

    def receive(data: bytes) -> None:
        message = command.decode(data)
        received.append((1e-6 * message.utime, *message.joint_position))

    connection.Subscribe("IIWA_COMMAND", receive)
    options = {"lcm": lcm, "use_cpp_serializer": True}
    commands = systems.LcmSubscriberSystem.Make("IIWA_COMMAND", command, **options)
    states = systems.LcmPublisherSystem.Make(
        "IIWA_STATUS", types.lcmt_iiwa_status, publish_period=PERIOD_S, **options
    )
    builder.AddSystem(commands)
    builder.AddSystem(states)
    return commands.get_output_port(), states.get_input_port()


def run_arm(file: Path) -> None:
    """Runs the arm in drake's environment, and writes the commanded positions."""
    iiwa = importlib.import_module("pydrake.manipulation")
    blocks = importlib.import_module("pydrake.systems.primitives")
    builder = importlib.import_module("pydrake.systems.framework").DiagramBuilder()
    received: list[Any] = []
    commands, states = drakes_link(builder, received)
    receiver = builder.AddSystem(iiwa.IiwaCommandReceiver())
    sender = builder.AddSystem(iiwa.IiwaStatusSender())
    joints = builder.AddSystem(blocks.FirstOrderLowPassFilter(LAG_S, 7))
    torque = builder.AddSystem(blocks.ConstantVectorSource(np.zeros(7)))
    commanded = receiver.get_commanded_position_output_port()
    for output, target in (
        (commands, receiver.get_message_input_port()),
        (joints.get_output_port(), receiver.get_position_measured_input_port()),
        (commanded, joints.get_input_port()),
        (commanded, sender.get_position_commanded_input_port()),
        (joints.get_output_port(), sender.get_position_measured_input_port()),
        (torque.get_output_port(), sender.get_torque_commanded_input_port()),
        (sender.get_output_port(), states),
    ):
        builder.Connect(output, target)
    log = blocks.LogVectorOutput(commanded, builder, publish_period=PERIOD_S)
    simulator = importlib.import_module("pydrake.systems.analysis").Simulator(builder.Build())
    context = simulator.get_mutable_context()
    joints.set_initial_output_value(joints.GetMyMutableContextFromRoot(context), HOME)
    simulator.set_target_realtime_rate(1.0)
    with contextlib.suppress(OSError):  # As drake-iiwa-driver does, if the system permits it.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    print("ready", flush=True)
    simulator.AdvanceTo(SECONDS + LEAD_S)
    np.savez(file, received=received, followed=log.FindLog(context).data().T)


def expect(holds: bool | np.bool_, claim: str) -> None:
    """Prints a claim that holds; ends this program with another one."""
    if not holds:
        sys.exit(f"Failed: {claim}")
    print(f"ok  {claim}", flush=True)


if __name__ == "__main__":
    main()
