"""Settings of the emulator program by protocol: one JSON document, or options of a command line."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, VERSIONS
from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS, LOOPBACK
from stringline.real_robot.drivers.lcm.wsg import COMMAND_CHANNEL, STATUS_CHANNEL
from stringline.real_robot.safety.limits import KUKA_EMBODIMENTS

OF_THE_ARMS = "of_the_arms"  # The gripper belongs to the emulated controller.
USUAL_PREFIX = "IIWA"
_PATHS = (Path, Path | None)


def _option(default: Any, about: str, choices: tuple[str, ...] | None = None) -> Any:
    """Returns a field with the help of its option on the command line."""
    return field(default=default, metadata={"help": about, "choices": choices})


@dataclass(frozen=True)
class EmulatorSettings:
    """Settings of the emulator of any protocol; `help` of each field describes it."""

    PROTOCOL: ClassVar[str] = ""

    device_hz: float = _option(100.0, "periods per second")

    def document(self) -> str:
        """Returns the settings as one JSON document, which `settings_of_document` reads."""
        return json.dumps({"protocol": self.PROTOCOL, **asdict(self)}, default=str)


@dataclass(frozen=True)
class WorldSettings(EmulatorSettings):
    """Settings of arms that move a world."""

    task: str = _option("", "task of the simulation; empty: arms without a world")
    cameras: tuple[str, ...] | None = _option((), "cameras of the task, comma-separated")
    image_size: int = _option(128, "rows and columns of the images")
    frame_hz: float = _option(12.5, "images per second")
    time_limit_s: float = _option(15.0, "seconds until an episode expires")
    robot_model: str = _option("primitives", "model that the arms are drawn with; or menagerie")
    lock_step: bool = _option(False, "advance on request of the client instead of in real time")
    capture: Path | None = field(default=None, metadata={"help": "folder for commands of drivers"})


@dataclass(frozen=True)
class AlohaSettings(WorldSettings):
    """Settings of the followers of an ALOHA, over Dynamixel's protocol 2.0."""

    PROTOCOL: ClassVar[str] = "dynamixel"

    task: str = _option("hand_over_banana", "task of the simulation")
    cameras: tuple[str, ...] | None = _option(
        None, "comma-separated; default: all of an ALOHA, or none with the first-order plant"
    )
    seed: int = _option(0, "seed of the first episode")
    plant: str = _option("mujoco", "world that the servos move", ("mujoco", "first_order"))


@dataclass(frozen=True)
class LeaderSettings(EmulatorSettings):
    """Settings of the leaders of an ALOHA, which a scripted hand moves."""

    PROTOCOL: ClassVar[str] = "leaders"

    hand: Path | None = field(
        default=None, metadata={"help": "file with the path of the hand; default: the home pose"}
    )


@dataclass(frozen=True)
class KukaSettings(WorldSettings):
    """Settings of KUKA arms."""

    arms: str = _option("one", "number of arms without a task", tuple(KUKA_EMBODIMENTS))
    t1_unlimited: bool = _option(False, "no safety stop above 0.25 m/s in T1")
    phase: float = _option(0.4, "share of a period between the cycles of two controllers")
    gripper: str = _option(
        OF_THE_ARMS, "the controllers' own, or Schunk's WSG over LCM", (OF_THE_ARMS, WSG_LCM)
    )
    gripper_address: str = _option(DEFAULT_ADDRESS, "group:port of LCM, for the gripper")
    gripper_interface: str = _option(LOOPBACK, "address of this computer on the group's network")
    gripper_commands: str = _option(COMMAND_CHANNEL, "channel of commands; {arm}: name of the arm")
    gripper_states: str = _option(STATUS_CHANNEL, "channel of states; {arm}: name of the arm")


@dataclass(frozen=True)
class FriSettings(KukaSettings):
    """Settings of KUKA arms, over FRI and UDP."""

    PROTOCOL: ClassVar[str] = "fri"

    version: str = _option(DEFAULT_VERSION, "version of FRI", tuple(VERSIONS))
    receive_multiplier: int = _option(1, "messages for each answer")
    ports: str = _option("", "UDP ports of the drivers, comma-separated; empty: free ones")
    most_missed: int = _option(4, "answers in a row that may be missing")
    good: float = _option(0.8, "share of answers in time from which commands are accepted")
    no_restart: bool = _option(False, "the application ends when its motion is interrupted")


@dataclass(frozen=True)
class LcmSettings(KukaSettings):
    """Settings of KUKA arms behind drake-iiwa-driver, over LCM."""

    PROTOCOL: ClassVar[str] = "lcm"

    gripper: str = _option(
        WSG_LCM, "the controllers' own, or Schunk's WSG over LCM", (OF_THE_ARMS, WSG_LCM)
    )
    gripper_address: str = _option(
        "", "group:port of LCM, for the gripper; empty: that of --address"
    )
    address: str = _option("", "group:port of LCM; empty: LCM's group, on a free port")
    prefixes: str = _option(
        USUAL_PREFIX, "prefixes of the channels, comma-separated: one for all arms, or one per arm"
    )
    clock_samples: int = _option(200, "messages until the clock of a program is synchronised")
    guard_s: float = _option(0.25, "seconds after its start in which a program accepts no command")
    restart_fri: bool = _option(False, "arms may be commanded in a second motion")


PROTOCOLS: Mapping[str, type[EmulatorSettings]] = {
    kind.PROTOCOL: kind for kind in (AlohaSettings, LeaderSettings, FriSettings, LcmSettings)
}


def settings_of_document(document: str) -> EmulatorSettings:
    """Returns the settings of a JSON document.

    Raises:
        ValueError: The document is not valid JSON, or contains an unknown protocol or setting.
    """
    given: dict[str, Any] = json.loads(document)
    protocol = str(given.pop("protocol", None))
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol of an emulator", protocol, PROTOCOLS)
    kind = PROTOCOLS[protocol]
    hints = get_type_hints(kind)
    known = [one.name for one in fields(kind)]
    for name, value in given.items():
        if name not in known:
            raise unknown_name(f"setting of the {protocol} emulator", name, known)
        if isinstance(value, list):
            given[name] = tuple(value)
        elif isinstance(value, str) and hints[name] in _PATHS:
            given[name] = Path(value)
    return kind(**given)


def settings_of_arguments(arguments: list[str] | None, description: str) -> EmulatorSettings:
    """Returns the settings of a command line: a protocol with options, or `--settings DOCUMENT`.

    Without arguments, those of this process are read. `--help` begins with the description.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", help="protocol and all settings as one JSON document")
    protocols = parser.add_subparsers(dest="protocol", metavar="{" + ",".join(PROTOCOLS) + "}")
    for name, kind in PROTOCOLS.items():
        about = (kind.__doc__ or "").partition("\n")[0]
        own = protocols.add_parser(
            name,
            help=about,
            description=about,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        hints = get_type_hints(kind)
        for one in fields(kind):
            _add_option(own, one, hints[one.name])
    found = vars(parser.parse_args(arguments))
    document = found.pop("settings")
    protocol = found.pop("protocol")
    if (document is None) == (protocol is None):
        parser.error("Either a protocol or --settings is needed.")
    return settings_of_document(document) if protocol is None else PROTOCOLS[protocol](**found)


def _add_option(parser: argparse.ArgumentParser, one: Field[Any], hint: Any) -> None:
    name = "--" + one.name.removesuffix("_s").replace("_", "-")
    about = one.metadata["help"]
    if hint is bool:
        parser.add_argument(name, dest=one.name, action="store_true", help=about)
        return
    read = hint
    if hint in _PATHS:
        read = Path
    elif hint not in (str, int, float):
        read = _names
    parser.add_argument(
        name,
        dest=one.name,
        type=read,
        default=one.default,
        choices=one.metadata.get("choices"),
        help=about,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)
