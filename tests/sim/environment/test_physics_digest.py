"""The digest of a task changes with its physics, its success criterion and its starts."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from stringline import StartRange, TabletopTask
from stringline.sim.tasks import hand_over_tasks, success, tabletop
from stringline.sim.tasks.hand_over_tasks import HandOverBanana
from stringline.sim.worlds.world_versions import physics_digest

TASK = "hand_over_banana"


@pytest.fixture(autouse=True)
def _without_memory() -> Iterator[None]:
    physics_digest.cache_clear()
    yield
    physics_digest.cache_clear()


def again(*, varied: bool = False, strict: bool = False) -> str:
    """The digest without that of the first call."""
    physics_digest.cache_clear()
    return physics_digest(TASK, varied, strict)


@pytest.mark.slow
def test_it_depends_on_task_and_rule_alone() -> None:
    first = physics_digest(TASK, False, False)
    assert first == again()
    other = physics_digest("hand_over_pen", False, False)
    assert len({first, again(varied=True), again(strict=True), other}) == 4


@pytest.mark.slow
def test_it_does_not_depend_on_the_instructions_of_the_processor() -> None:
    task = "mug_on_plate"  # Its centres of mass contain the rounding errors of sines.
    code = "import sys; from stringline.sim.worlds.world_versions import physics_digest"
    plain = subprocess.run(
        [sys.executable, "-c", f"{code}; print(physics_digest(*sys.argv[1:], True, True))", task],
        env=os.environ | {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F,-FMA4"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.stdout.split() == [physics_digest(task, True, True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "value", "counts"),
    [
        (success, "REST_SECONDS", 0.6, True),  # Of all tasks.
        (hand_over_tasks, "ITEM_X", (0.1, 0.2), True),  # Of the module.
        (HandOverBanana, "stages", ("start", "success"), True),  # Of the class.
        (tabletop, "PHYSICS_SECONDS", 0.001, True),  # Of the model.
        (tabletop, "TABLE_COLOUR", (0.5, 0.5, 0.5, 1.0), False),
        (TabletopTask, "varied_starts", True, False),
    ],
)
def test_what_changes_it(
    owner: object, name: str, value: object, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = again()
    monkeypatch.setattr(owner, name, value)
    assert (again() != before) is counts


def test_the_range_of_the_start_is_part_of_varied_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = (again(), again(varied=True))
    chosen = StartRange(0.01, (0.0, 0.01), 0.0, 0.0, (1.0, 1.0))
    monkeypatch.setattr(HandOverBanana, "start_range", chosen)
    assert again() == before[0]
    assert again(varied=True) != before[1]
