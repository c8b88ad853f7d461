"""The command `stringline-incident`: reads the log of an incident, and sends what is in it to emulated arms."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_reader import Incident
from stringline.real_robot.incidents.incident_table import IncidentTable
from stringline.real_robot.replay.dynamixel_replay import replay
from stringline.real_robot.robots.backends import arm_kind

_UNSEEN = 128  # Rows and columns of images that nobody looks at.


def main() -> None:
    """The command `stringline-incident`; its exit code is 3 when a replay is answered differently."""
    run("incident", show, stopped="Stopped.")


def show(config: DictConfig) -> None:
    """Prints the table of a log, or replays it."""
    incident = Incident.open(Path(config.file))
    if config.replay:
        _replay(incident)
        return
    last_s = None if config.last_s is None else float(config.last_s)
    table = IncidentTable(
        incident, last_s=last_s, every_cycle=bool(config.every_cycle), wire=bool(config.wire)
    )
    for line in table.lines():
        sys.stdout.write(f"{line}\n")


def _replay(incident: Incident) -> None:
    configuration = incident.header.get("configuration", {})
    with emulator_of(configuration) as emulator:
        result = replay(
            incident,
            emulator,
            seed=int(configuration.get("seed", 0)),
            options=configuration.get("options"),
        )
    sys.stdout.write(f"{result.sent} bytes sent, {result.equal} bytes answered as recorded.\n")
    if result.difference:
        sys.stdout.write(f"The first difference: {result.difference}\n")
        raise SystemExit(3)


def emulator_of(configuration: Mapping[str, Any]) -> Emulator:
    """Returns the emulator that a deployment's configuration describes, in lock-step and without cameras, not started yet.

    Real arms have none; the simplest stands in for them, which answers alike only until the arms
    move.
    """
    robot = configuration.get("robot", {})
    settings = robot.get("emulator")
    kind = arm_kind({"driver": {}, **robot})
    if settings is not None:
        chosen = {
            key: value for key, value in settings.items() if key != "robot_model"
        }  # Nobody looks.
        return kind.emulator(lock_step=True, cameras=(), image_size=_UNSEEN, settings=chosen)
    return kind.bare_emulator(["--lock-step"])


if __name__ == "__main__":
    main()
