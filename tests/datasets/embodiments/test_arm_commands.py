"""What Cartesian actions command: round trips, and contracts that do not say enough."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.embodiments.arm_commands import (
    CartesianCommands,
    arm_commands,
    opening_places,
)

Floats = NDArray[np.float64]
STEPS: dict[str, Any] = {"mode": "relative", "scale": 0.05, "limits": (-1.0, 1.0)}
SLOW: dict[str, Any] = {"mode": "absolute", "scale": 0.5, "offset": 0.1}
TARGETS: dict[str, Any] = {**SLOW, "speed": 0.4}
GRIPPER = ActionDimension(
    "arm/gripper", "arm", "gripper", "absolute", "opening", "base", -0.5, 0.5, (-1.0, 1.0)
)


def dimensions(frame: str = "base", turns: bool = True, **declared: Any) -> list[ActionDimension]:
    found = [
        ActionDimension(f"arm/{a}", "arm", "position", unit="m", frame=frame, **declared)
        for a in "xyz"
    ]
    if turns:
        plain: dict[str, Any] = {**declared, "scale": 1.0, "offset": 0.0}
        found += [
            ActionDimension(f"arm/turn_{a}", "arm", "rotation", frame=frame, **plain) for a in "xyz"
        ]
    return [*found, GRIPPER]


def contract_of(action: list[ActionDimension], **changes: Any) -> Contract:
    made = Contract("hand", "table", 20.0, (), ("arm/gripper",), ("arm",), tuple(action))
    return replace(made, **changes)


def pose_of(rng: np.random.Generator, spread_m: float, spread_rad: float) -> Floats:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(rng.normal(0, spread_rad, 3)).as_matrix()
    T[:3, 3] = rng.uniform(-spread_m, spread_m, 3)
    return T


@pytest.mark.parametrize("turns", [True, False])
@pytest.mark.parametrize(
    ("frame", "declared"),
    [
        ("base", STEPS),
        ("gripper", STEPS),
        ("base", TARGETS),
    ],
)
def test_the_action_to_a_pose_leads_there(
    frame: str, declared: dict[str, Any], turns: bool
) -> None:
    """The way is at most the limit of a relative action."""
    commands = arm_commands(contract_of(dimensions(frame, turns, **declared)))
    assert isinstance(commands, CartesianCommands)
    rng = np.random.default_rng(0)
    for _ in range(20):
        now = pose_of(rng, 0.3, 0.5)
        goal = now @ pose_of(rng, 0.025, 0.2)
        goal[:3, :3] = goal[:3, :3] if turns else now[:3, :3]
        opening = rng.uniform(size=1)
        action = commands.action(now[None], goal[None], opening)
        np.testing.assert_allclose(commands.reached(action, now[None])[0], goal, atol=1e-9)
        assert action[-1] == pytest.approx(1 - 2 * opening[0]), "the number 1 closes"


def test_a_step_beyond_the_limit_goes_as_far_as_it_can() -> None:
    commands = CartesianCommands(contract_of(dimensions(turns=False, **STEPS)), "Keyposes")
    goal = np.eye(4)
    goal[:3, 3] = [0.2, -0.01, 0.0]
    action = commands.action(np.eye(4)[None], goal[None], np.ones(1))
    np.testing.assert_allclose(action, [1.0, -0.2, 0.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(
        commands.reached(action, np.eye(4)[None])[0, :3, 3], [0.05, -0.01, 0.0], atol=1e-12
    )
    assert commands.speed(commands.hands[0].position) == pytest.approx(0.05 * 20)


def test_a_recording_is_where_the_hand_was_and_ends_where_it_was_going() -> None:
    commands = CartesianCommands(contract_of(dimensions(turns=False, **STEPS)), "Keyposes")
    measured = np.tile(np.eye(4), (5, 1, 1, 1))
    measured[:, 0, 0, 3] = 0.01 * np.arange(5)
    action = np.tile([0.5, 0.0, 0.0, 1.0], (5, 1))
    poses, openings = commands.motion(action, measured)
    np.testing.assert_allclose(poses[:-1], measured[:-1])
    assert poses[-1, 0, 0, 3] == pytest.approx(0.04 + 0.025)
    assert (openings == 0).all()
    longer, _ = commands.motion(np.concatenate([action, action[:2]]), measured)
    np.testing.assert_allclose(longer[-3:, 0, 0, 3], 0.04 + 0.025 * np.arange(1, 4))


def test_declarations_are_stored_and_others_take_no_room() -> None:
    contract = contract_of(dimensions(turns=False, **STEPS))
    plain = contract.to_dict()
    assert Contract.from_dict(plain) == contract
    assert "speed" not in plain["action"][0]
    assert plain["action"][-1]["scale"] == -0.5
    joint = ActionDimension("left/waist", "left", "joint")
    assert set(joint.to_dict()) == {"name", "arm", "kind", "mode", "unit", "frame"}
    assert opening_places(contract) == {"arm": 0}


def _lacking(place: int, **changes: Any) -> Callable[[], Contract]:
    def made() -> Contract:
        action = dimensions(turns=False, **STEPS)
        action[place] = replace(action[place], **changes)
        return contract_of(action)

    return made


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (_lacking(1, limits=None), "the speed (or the limits) of arm/y, m/s"),
        (_lacking(2, unit="1"), "the unit m of arm/z, which has '1'"),
        (_lacking(0, frame="world"), "the frame base or gripper of arm/x, which has 'world'"),
        (_lacking(0, frame="gripper"), "one mode and one frame for the position of arm"),
        (_lacking(0, arm="left"), "T_base_gripper/left, the measured pose of the arm of arm/x"),
        (_lacking(3, unit="1"), "the unit opening of arm/gripper, which has '1'"),
        (_lacking(3, mode="relative"), "an absolute opening: arm/gripper is relative"),
        (_lacking(3, kind="joint"), "Cartesian actions only: arm/gripper is of the kind joint"),
        (
            lambda: contract_of(dimensions(turns=False, **STEPS)[:2]),
            "x, y and z of the position of arm: it has 2 dimensions",
        ),
        (
            lambda: contract_of(dimensions(turns=False, **SLOW)),
            "the speed of arm/x, m/s",
        ),
        (
            lambda: contract_of(dimensions(turns=False, **STEPS), arms=()),
            "arms with T_base_gripper/ARM",
        ),
    ],
)
def test_what_is_not_declared_is_named_with_the_way_out(
    made: Callable[[], Contract], what: str
) -> None:
    message = (
        f"Keyposes need Cartesian actions that are declared completely; hand lacks {what}. Declare "
        "it where the environment is made (docs/other-environments.md), or train policy=diffusion."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        arm_commands(made())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 0.0}, "'x' has scale 0"),
        ({"offset": np.nan}, "'x' has scale 1 and offset nan"),
        ({"limits": (1.0, -1.0)}, "'x' has limits"),
        ({"speed": 0.0}, "'x' has speed 0; allowed: above 0"),
    ],
)
def test_a_declaration_without_meaning_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActionDimension("x", "arm", "position", **changes)
