"""Results and demonstrations have the versions of task, physics and packages."""

from importlib.metadata import PackageNotFoundError, version

import pytest

import stringline.datasets.command.installation as installed
from stringline.sim.worlds.world_versions import (
    VERSIONS,
    physics_digest,
    result_versions,
    world_versions,
)


def test_the_versions_of_a_task_of_this_package() -> None:
    found = result_versions("kuka_hand_over", {})
    assert found == {
        "start_spread": 1.0,
        "strict": False,
        "physics": physics_digest("kuka_hand_over", True, False),
        "mujoco": version("mujoco"),
        "torch": version("torch"),
        "stringline": version("stringline"),
    }
    assert set(found) == set(VERSIONS)
    first = world_versions("kuka_hand_over", {"start_spread": 0, "strict": True})
    assert (first["start_spread"], first["strict"]) == (0, True)
    assert first["physics"] == physics_digest("kuka_hand_over", False, True)
    assert "torch" not in first


def test_third_party_tasks_have_those_of_the_packages() -> None:
    assert set(world_versions("gym_aloha_transfer_cube", {})) == {"mujoco", "stringline"}


def test_a_rule_that_the_task_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strict is true, but kuka_pick has one criterion"):
        world_versions("kuka_pick", {"strict": True})


def test_a_checkout_that_is_not_installed_has_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(installed, "version", missing)
    assert world_versions("fmb_1", {})["stringline"] == "(not installed)"
