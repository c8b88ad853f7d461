"""The command `stringline-teleop`: teleoperation of a simulated robot from a web page.

The world runs at its control rate in the main thread, with or without a viewer; threads serve the
page. Episodes are recorded into a store.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from stringline.datasets.command.application import report_next, run
from stringline.datasets.contract.argument_checks import WHOLE
from stringline.policies.remote.access import ServerAccess
from stringline.sim.collect import (
    OPEN_CORRECTED,
    open_recipe_world,
    task_recipe,
    with_task_of_policy,
)
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.evaluation.results import attempts_table
from stringline.sim.teleop.gamepad import Gamepad, GamepadControl, GamepadLayout
from stringline.sim.teleop.page import Page
from stringline.sim.teleop.page_server import address_of, close_server, open_server
from stringline.sim.teleop.steering import Speeds
from stringline.sim.teleop.taking_over import ActingPolicy
from stringline.sim.teleop.teleop_session import Rate, StopConditions, TakeRecorder, TeleopSession
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_versions import world_versions

if TYPE_CHECKING:  # It loads torch, which a session without a policy does not need.
    from stringline.sim.evaluation.corrected_policy import CorrectedPolicy


def main() -> None:
    """The command `stringline-teleop`."""
    run("teleop", teleoperate, stopped="Stopped.", complete=with_task_of_policy)


def teleoperate(config: DictConfig) -> None:
    """Serves the page until Ctrl-C."""
    WHOLE.check(seed=config.seed)
    stop_conditions = StopConditions(config.longest_s, config.end_on_success)
    speeds = Speeds(**config.speeds)
    gamepad = _gamepad(config.gamepad)
    access = ServerAccess.of(config.access)
    with (
        _server(config.host, config.port, access) as server,
        _session(config, stop_conditions, speeds) as session,
    ):
        page = Page(server, session, hz=config.page_hz)
        _print(
            f"Open {address_of(config.host, server.get_port(), access)} in a browser. Ctrl-C ends "
            f"the session; the store is {config.store}."
        )
        _serve(session, page, gamepad)


def _serve(session: TeleopSession, page: Page, gamepad: Gamepad | None) -> None:
    """Runs the world until Ctrl-C."""
    control = GamepadControl(session)
    note = ""
    rate = Rate(session.world.contract.control_hz)
    while True:
        page.poll()
        if gamepad is not None:
            page.follow(control, gamepad.command())
            note = f"gamepad: {control.arm} arm" if gamepad.connected else "gamepad: unplugged"
        session.tick(watched=page.watched)
        page.show(rate.speed, note)
        rate.wait()


@contextmanager
def _server(host: str, port: int, access: ServerAccess) -> Iterator[Any]:
    server = open_server(host, port, access)
    try:
        yield server
    finally:
        close_server(server)


@contextmanager
def _session(
    config: DictConfig, stop_conditions: StopConditions, speeds: Speeds
) -> Iterator[TeleopSession]:
    """Opens world and store; the end reports the kept episodes and discards the others."""
    recipe, corrected = _recipe(config)
    world = open_recipe_world(recipe)
    try:
        if not isinstance(world, TaskEnvironment):
            raise ValueError(
                f"{recipe.task} is a third-party environment, which cannot be teleoperated. Choose "
                f"another task."
            )
        policy = None if corrected is None else _acting(corrected, world)
        versions = world_versions(recipe.task, recipe.options, recipe.embodiment)
        instruction = world.task.instruction if policy is None else policy.instruction
        recorder = TakeRecorder(
            config.store,
            replace(recipe, versions=versions),
            world.contract,
            instruction,
            tuple(world.task.stages),
        )
    except (ValueError, OSError):
        world.close()
        raise
    session = TeleopSession(
        world, recorder, recipe.options, config.seed, speeds, stop_conditions, policy
    )
    try:
        yield session
    finally:
        _report(session)
        world.close()


def _report(session: TeleopSession) -> None:
    """Discards an open take, and reports the kept ones and the rates of a policy."""
    recorder = session.recorder
    lost = " The open take is lost." if recorder.discard() else ""
    names = "".join(f"\n  {name}" for name in recorder.kept)
    count = f"{len(recorder.kept)} episode{'' if len(recorder.kept) == 1 else 's'}"
    _print(f"Kept {count} in {recorder.store.path}.{lost}{names}")
    if session.attempts:
        _print(attempts_table(session.attempts))
    if recorder.kept:
        report_next(
            "stringline-view", {"store": str(recorder.store.path), "episode": recorder.kept[-1]}
        )


def _acting(corrected: "CorrectedPolicy", world: TaskEnvironment) -> ActingPolicy:
    """Returns a policy that acts in a world.

    Raises:
        ValueError: It does not fit the world.
    """
    if reasons := corrected.policy.contract.incompatibilities(world.contract):
        raise ValueError(f"The policy does not fit this world. {' '.join(reasons)}")
    chosen = corrected.execution
    return ActingPolicy(
        corrected.policy, chosen.execution, chosen.execute_steps, corrected.instruction
    )


def _recipe(config: DictConfig) -> "tuple[Recipe, CorrectedPolicy | None]":
    """Returns the recipe of the takes, and the policy that acts in them."""
    task = TaskSettings.of(config.task)
    corrected: CorrectedPolicy | None = None
    if config.policy is not None:
        corrected, task = resolve_name(OPEN_CORRECTED)(str(config.policy), task, str(config.device))
    recipe = task_recipe(
        task, varied=False, time_limit_s=config.longest_s, robot_model=config.robot.model
    )
    if corrected is None:
        return recipe, None
    return replace(recipe, policy=corrected.described()), corrected


def _gamepad(settings: DictConfig) -> Gamepad | None:
    layout = GamepadLayout(**settings.layout)
    return None if settings.device is None else Gamepad(settings.device, layout)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
