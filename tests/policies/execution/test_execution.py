"""Execution of chunks: requests, skipped actions, waiting, and errors."""

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.policies.scripted import (
    CONTRACT,
    HZ,
    Keeping,
    KeepingSession,
    Scripted,
    ScriptedSession,
    seen,
)

from stringline.policies.chunks.chunk import accepts_prefix
from stringline.policies.execution.execution import (
    NAMES,
    ChunkExecutor,
    CombiningPolicy,
    Execution,
)


class Watch:
    """A clock that advances by a given time between two readings."""

    def __init__(self, now: float, *steps: float) -> None:
        self.now, self.steps = now, list(steps)

    def __call__(self) -> float:
        self.now += self.steps.pop(0)
        return self.now


class Remembering(Keeping):
    """Stores its sessions."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.sessions = list[KeepingSession]()

    def session(self, seed: int) -> KeepingSession:
        self.sessions.append(super().session(seed))
        return self.sessions[-1]


@pytest.fixture
def durations(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The apparent durations of the next plans, in seconds."""
    left: list[float] = []

    def clock_readings() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += left.pop(0)
            yield now

    watch = clock_readings()
    monkeypatch.setattr(
        "stringline.policies.execution.execution.time.perf_counter", lambda: next(watch)
    )
    return left


def test_without_delay_plans_are_those_of_the_policy() -> None:
    """To the bit, for every execution without overlapping plans."""
    for name in NAMES:
        executed = ChunkExecutor(Keeping(8), 3, Execution(name), execute_steps=8)
        plain = Keeping(8).session(3)
        for number in range(3):
            found, expected = executed.plan(seen(8 * number)), plain.plan(seen(8 * number))
            np.testing.assert_array_equal(found.action, expected.action, err_msg=name)
            np.testing.assert_array_equal(found.time, expected.time, err_msg=name)
            assert executed.delay_steps == 0


def test_a_given_delay_begins_with_the_second_plan() -> None:
    """Simulated time begins with the first plan."""
    executed = ChunkExecutor(Scripted(8), 0, Execution(delay_s=0.25), execute_steps=4)
    delays = []
    for number in range(3):
        chunk = executed.plan(seen(4 * number))
        assert chunk.time[0] == pytest.approx(5.0 + 0.4 * number)
        delays.append(executed.delay_steps)
    assert delays == [0, 3, 3]


def test_a_measured_delay_is_the_duration_of_the_plan(durations: list[float]) -> None:
    durations += [9.0, 0.11, 0.3, 0.0]
    late = Execution(delay_s="measured")
    executed = ChunkExecutor(Scripted(8), 0, late, execute_steps=4)
    found = [(executed.plan(seen(4 * number)), executed.delay_steps)[1] for number in range(4)]
    assert found == [0, 2, 3, 0]


def test_a_plan_is_delayed_by_the_wait_of_the_arms(durations: list[float]) -> None:
    """The old plan ends at 5.8 s, the new one of 5.4 s arrives at 6.1 s and continues at 5.8 s."""
    durations += [0.0, 0.7]
    executed = ChunkExecutor(Scripted(8), 0, Execution(delay_s="measured"), execute_steps=4)
    assert executed.plan(seen(0)).time[-1] == pytest.approx(5.7)
    late = executed.plan(seen(4))
    assert late.time[0] == pytest.approx(5.4 + 0.3)
    assert late.time[4] == pytest.approx(6.1)


def test_in_real_time_the_first_plan_begins_at_its_arrival() -> None:
    """The arms wait for the first plan; of later ones, while the arms move, the past is skipped."""
    watch = Watch(5.0, 0.33, 0.2)
    executed = ChunkExecutor(Scripted(8), 0, Execution(), execute_steps=4, clock=watch)
    first = executed.plan(seen(0))
    assert (first.time[0], executed.delay_steps) == (pytest.approx(5.33), 4)
    watch.now = 5.7
    second = executed.plan(seen(7))
    assert (second.time[0], executed.delay_steps) == (pytest.approx(5.7), 2)


def test_in_real_time_chunking_fixes_the_measured_delay() -> None:
    """The first plan is delayed by its own time, which is soon forgotten as a cold measurement."""
    keeping = Remembering(12)
    watch = Watch(5.0, 0.5, 0.14, 0.14)
    executed = ChunkExecutor(
        keeping,
        0,
        Execution("real_time_chunking", delay_s=0.1),
        execute_steps=4,
        clock=watch,
    )
    first = executed.plan(seen(0))
    watch.now = 5.7
    second = executed.plan(seen(7))
    np.testing.assert_array_equal(second.action[:5], first.action[2:7])
    watch.now = 6.1
    third = executed.plan(seen(11))
    np.testing.assert_array_equal(third.action[:2], second.action[4:6])
    fixed = [
        0 if prefix is None else int((prefix.weight == 1).sum())
        for prefix in keeping.sessions[0].prefixes
    ]
    assert fixed == [0, 5, 2]


def test_stop_and_go_ends_plans_at_the_next_request() -> None:
    execution = Execution("stop_and_go", delay_s=0.2)
    assert execution.replan_after(3) is None
    executed = ChunkExecutor(Scripted(8), 0, execution, execute_steps=3)
    first, second = executed.plan(seen(0)), executed.plan(seen(3))
    assert (len(first.time), len(second.time)) == (3, 3)
    assert second.time[0] == pytest.approx(5.3 + 0.2)


def test_unknown_names_and_settings_are_rejected() -> None:
    for settings, words in (
        (
            {"name": "real_time_chunkin"},
            "no execution 'real_time_chunkin'. Did you mean 'real_time_chunking'",
        ),
        ({"delay": 0.1}, "no setting of execution 'delay'. Did you mean 'delay_s' or 'decay'"),
        ({"delay_s": -0.1}, "delay_s is -0.1; allowed: seconds from 0, or 'measured'"),
        ({"delay_s": "meassured"}, "delay_s is 'meassured'"),
        ({"delay_s": float("inf")}, "delay_s is inf"),
        ({"delay_s": None}, "delay_s is None"),
        (
            {"name": "temporal_ensembling", "decay": "much"},
            r"decay must be a finite number \(got .much.\)",
        ),
        ({"decay": 0.1}, "decay needs temporal_ensembling; the execution is receding_horizon"),
    ):
        with pytest.raises(ValueError, match=words):
            Execution.of(settings)


def test_a_minimal_policy_supports_all_executions_except_real_time_chunking() -> None:
    for name in NAMES[:3]:
        executed = ChunkExecutor(Scripted(8), 0, Execution(name), execute_steps=4)
        assert len(executed.plan(seen(0)).time) in {4, 8}
    with pytest.raises(ValueError, match="ScriptedSession supports no action prefix"):
        ChunkExecutor(Scripted(8), 0, Execution("real_time_chunking"), execute_steps=4)


def test_a_server_combines_plans_for_its_clients() -> None:
    combined = CombiningPolicy(Scripted(8), Execution("temporal_ensembling", decay=0.5))
    assert combined.contract == CONTRACT
    session, own = combined.session(4), ScriptedSession(8, seed=4)
    first, second = (session.plan(seen(step)).action for step in (0, 3))
    (old, new) = (own.plan(seen(step)).action for step in (0, 3))
    np.testing.assert_array_equal(first, old)
    weight = np.exp(-0.5)
    np.testing.assert_allclose(second[:5], (old[3:] + weight * new[:5]) / (1 + weight), rtol=1e-5)
    np.testing.assert_array_equal(second[5:], new[5:])
    late = CombiningPolicy(Keeping(8), Execution("real_time_chunking", delay_s=2 / HZ)).session(1)
    first, second = late.plan(seen(0)), late.plan(seen(3))
    np.testing.assert_array_equal(second.action[:2], first.action[3:5])
    assert not accepts_prefix(late)
    far = late.plan(seen(30))
    assert far.time[0] == pytest.approx(8.0), "a server delays no plan; its clients do"
    for execution, words in (
        (Execution("stop_and_go"), "is decided where they are executed"),
        (Execution(delay_s=0.1), "is decided where they are executed"),
        (
            Execution("real_time_chunking", delay_s="measured"),
            "A server cannot measure when its plans arrive",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            CombiningPolicy(Keeping(8), execution)


def test_records_contain_the_settings_of_an_execution() -> None:
    """The default writes nothing, so old results continue; all other settings are recorded."""
    assert Execution().about() == Execution().overrides() == {}
    assert (
        Execution.of({"name": "receding_horizon", "delay_s": 0})
        == Execution()
        == Execution.of(None)
    )
    late = Execution("temporal_ensembling", delay_s=0.1, decay=0.02)
    assert Execution.of(late.about()["execution"]) == late
    assert late.overrides() == {
        "execution": "temporal_ensembling",
        "execution.delay_s": 0.1,
        "execution.decay": 0.02,
    }
    assert late.described(12) == (
        "12 actions between two plans, temporal ensembling, plans in force 0.1 s late, decay 0.02"
    )
    assert (
        Execution("stop_and_go", delay_s="measured")
        .described(None)
        .endswith("plans in force as late as measured")
    )
    assert Execution().described(24) == "24 actions between two plans"


def test_execution_imports_without_torch() -> None:
    code = "import sys, stringline.policies.execution.execution; print('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )


@pytest.mark.parametrize("command", ["eval", "serve", "deploy", "compare"])
def test_every_choice_of_the_configuration_is_an_execution(command: str) -> None:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for name in NAMES:
            settings = OmegaConf.to_container(
                compose(command, overrides=[f"execution={name}"]).execution
            )
            assert isinstance(settings, dict)
            assert Execution.of({str(key): value for key, value in settings.items()}).name == name
        plain = OmegaConf.to_container(compose(command).execution)
    assert isinstance(plain, dict)
    assert Execution.of({str(key): value for key, value in plain.items()}) == Execution()
