"""The command `stringline-teleop`: a person steers a simulated robot from a web page, and records it into an episode store.

The world runs at its control rate in this process's main thread, whether somebody looks or not; the
page is served by threads.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.contract.arguments import WHOLE
from stringline.sim.collect import open_recipe_world
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.teleop.gamepad import Gamepad, Layout
from stringline.sim.teleop.hands import Hands
from stringline.sim.teleop.pace import Pace
from stringline.sim.teleop.page import Page
from stringline.sim.teleop.page_server import close_server, open_server
from stringline.sim.teleop.steering import Speeds
from stringline.sim.teleop.take_recorder import Takes
from stringline.sim.teleop.teleop_session import Operation, Rules
from stringline.sim.worlds.world_registry import demand_task_settings


def main() -> None:
    """The command `stringline-teleop`."""
    run("teleop", teleoperate, stopped="Stopped.")


def teleoperate(config: DictConfig) -> None:
    """Serves the page until somebody ends it."""
    WHOLE.check(seed=config.seed)
    rules = Rules(config.longest_s, config.end_on_success)
    speeds = Speeds(**config.speeds)
    gamepad = _gamepad(config.gamepad)
    with (
        _server(config.host, config.port) as server,
        _operation(config, rules, speeds) as operation,
    ):
        page = Page(server, operation, hz=config.page_hz)
        _say(
            f"Open http://{config.host}:{server.get_port()} in a browser. Ctrl-C ends it; the "
            f"store is {config.store}."
        )
        _serve(operation, page, gamepad)


def _serve(operation: Operation, page: Page, gamepad: Gamepad | None) -> None:
    """Runs the world for ever."""
    hands = Hands(operation, operation.world.embodiment)
    note = ""
    pace = Pace(operation.world.contract.control_hz)
    while True:
        page.poll()
        if gamepad is not None:
            page.follow(hands, gamepad.wish())
            note = f"gamepad: {hands.arm} arm" if gamepad.connected else "gamepad: unplugged"
        operation.tick(watched=page.watched)
        page.show(pace.speed, note)
        pace.wait()


@contextmanager
def _server(host: str, port: int) -> Iterator[Any]:
    server = open_server(host, port)
    try:
        yield server
    finally:
        close_server(server)


@contextmanager
def _operation(config: DictConfig, rules: Rules, speeds: Speeds) -> Iterator[Operation]:
    """Opens world and store, and at the end says what was kept and forgets what was not."""
    recipe = _recipe(config)
    world = open_recipe_world(recipe)
    if not isinstance(world, TaskEnvironment):
        world.close()
        raise ValueError(
            f"{recipe.task} is a world of others, which cannot be steered by hand; choose a task "
            f"of ours or your own."
        )
    takes = Takes(
        config.store, recipe, world.contract, world.task.instruction, tuple(world.task.stages)
    )
    try:
        yield Operation(world, takes, recipe.options, config.seed, speeds, rules)
    finally:
        lost = " The take that was open is lost." if takes.discard() else ""
        names = "".join(f"\n  {name}" for name in takes.kept)
        count = f"{len(takes.kept)} episode{'' if len(takes.kept) == 1 else 's'}"
        _say(f"Kept {count} in {takes.store.path}.{lost}{names}")
        world.close()


def _recipe(config: DictConfig) -> Recipe:
    task = config.task
    demand_task_settings(task)
    return Recipe(
        task=task.name,
        varied=False,
        cameras=tuple(task.cameras),
        image_size=task.image_size,
        control_hz=task.control_hz,
        frame_hz=task.frame_hz,
        time_limit_s=config.longest_s,
        options={str(key): value for key, value in task.options.items()},
        robot_model=config.robot.model,
    )


def _gamepad(settings: DictConfig) -> Gamepad | None:
    layout = Layout(**settings.layout)
    return None if settings.device is None else Gamepad(settings.device, layout)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
