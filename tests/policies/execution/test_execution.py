"""Execution of chunks: requests, skipped actions, waiting, and errors."""

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.policies.scripted import CONTRACT, HZ, Keeping, KeepingSession, Scripted, seen

from stringline.policies.execution.executed_session import KEPT, Latency, periods
from stringline.policies.execution.execution import NAMES, CombiningPolicy, Execution
from stringline.policies.execution.real_time_chunking import RealTimeChunking
from stringline.policies.execution.temporal_ensemble import TemporalEnsemble


class Watch:
    """A clock that advances by a given time between two readings."""

    def __init__(self, now: float, *steps: float) -> None:
        self.now, self.steps = now, list(steps)

    def __call__(self) -> float:
        self.now += self.steps.pop(0)
        return self.now


class Remembering(Keeping):
    """Keeps its sessions."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.sessions = list[KeepingSession]()

    def session(self, seed: int) -> KeepingSession:
        self.sessions.append(super().session(seed))
        return self.sessions[-1]


@pytest.fixture
def durations(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the next plans seem to take."""
    left: list[float] = []

    def looks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += left.pop(0)
            yield now

    watch = looks()
    monkeypatch.setattr(
        "stringline.policies.execution.executed_session.time.perf_counter", lambda: next(watch)
    )
    return left


def test_without_delay_plans_are_those_of_the_policy() -> None:
    """Bit for bit, whatever waits for a delay, as long as nothing overlaps."""
    for name in NAMES:
        executed = Execution(name).session(Keeping(8), 3, execute_steps=8)
        plain = Keeping(8).session(3)
        for number in range(3):
            found, expected = executed.plan(seen(8 * number)), plain.plan(seen(8 * number))
            np.testing.assert_array_equal(found.action, expected.action, err_msg=name)
            np.testing.assert_array_equal(found.time, expected.time, err_msg=name)
            assert executed.delay_steps == 0


def test_a_given_delay_begins_with_the_second_plan() -> None:
    """Simulated time does not begin before the first plan is there."""
    executed = Execution(delay_s=0.25).session(Scripted(8), 0, execute_steps=4)
    delays = []
    for number in range(3):
        chunk = executed.plan(seen(4 * number))
        assert chunk.time[0] == pytest.approx(5.0 + 0.4 * number)
        delays.append(executed.delay_steps)
    assert delays == [0, 3, 3]


def test_a_measured_delay_is_what_the_answer_took(durations: list[float]) -> None:
    durations += [9.0, 0.11, 0.3, 0.0]
    executed = Execution(delay_s="measured").session(Scripted(8), 0, execute_steps=4)
    found = [(executed.plan(seen(4 * number)), executed.delay_steps)[1] for number in range(4)]
    assert found == [0, 2, 3, 0]


def test_a_plan_waits_as_long_as_the_arms_do(durations: list[float]) -> None:
    """The old plan ends at 5.8 s, the new one of 5.4 s arrives at 6.1 s and continues at 5.8 s."""
    durations += [0.0, 0.7]
    executed = Execution(delay_s="measured").session(Scripted(8), 0, execute_steps=4)
    assert executed.plan(seen(0)).time[-1] == pytest.approx(5.7)
    late = executed.plan(seen(4))
    assert late.time[0] == pytest.approx(5.4 + 0.3)
    assert late.time[4] == pytest.approx(6.1)


def test_by_the_clock_the_first_plan_begins_when_it_is_there() -> None:
    """The arms wait for the first plan; of later ones, while the arms move, the past is skipped."""
    watch = Watch(5.0, 0.33, 0.2)
    executed = Execution().session(Scripted(8), 0, execute_steps=4, clock=watch)
    first = executed.plan(seen(0))
    assert (first.time[0], executed.delay_steps) == (pytest.approx(5.33), 4)
    watch.now = 5.7
    second = executed.plan(seen(7))
    assert (second.time[0], executed.delay_steps) == (pytest.approx(5.7), 2)


def test_by_the_clock_real_time_chunking_commits_what_was_measured() -> None:
    """The first plan is delayed by its own time, which is soon forgotten as a cold measurement."""
    keeping = Remembering(12)
    watch = Watch(5.0, 0.5, 0.14, 0.14)
    executed = Execution("real_time_chunking", delay_s=0.1).session(
        keeping, 0, execute_steps=4, clock=watch
    )
    first = executed.plan(seen(0))
    watch.now = 5.7
    second = executed.plan(seen(7))
    np.testing.assert_array_equal(second.action[:5], first.action[2:7])
    watch.now = 6.1
    third = executed.plan(seen(11))
    np.testing.assert_array_equal(third.action[:2], second.action[4:6])
    decided = [
        0 if asked is None else int((asked.weight == 1).sum())
        for asked in keeping.sessions[0].asked
    ]
    assert decided == [0, 5, 2]


def test_stop_and_go_ends_plans_where_the_next_one_is_asked_for() -> None:
    execution = Execution("stop_and_go", delay_s=0.2)
    assert execution.replan_after(3) is None
    executed = execution.session(Scripted(8), 0, execute_steps=3)
    first, second = executed.plan(seen(0)), executed.plan(seen(3))
    assert (len(first.time), len(second.time)) == (3, 3)
    assert second.time[0] == pytest.approx(5.3 + 0.2)


def test_what_to_expect_is_the_longest_of_the_latest() -> None:
    latency = Latency(50.0, start=4)
    assert latency.expected == 4
    assert latency.add(0.5) == 25
    assert latency.expected == 25, "only the cold one is known"
    assert latency.add(0.041) == 3
    assert latency.expected == 3
    latency.add(0.12)
    for _ in range(KEPT - 1):
        latency.add(0.02)
        assert latency.expected == 6
    latency.add(0.02)
    assert latency.expected == 1


def test_periods_round_up() -> None:
    assert [periods(seconds, 50.0) for seconds in (0.0, 0.019, 0.02, 0.021, 0.1, 0.3)] == [
        0,
        1,
        1,
        2,
        5,
        15,
    ]


def test_names_and_settings_that_do_not_exist() -> None:
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
            "decay is .much.; allowed: finite numbers",
        ),
        ({"decay": 0.1}, "decay needs temporal_ensembling; the execution is receding_horizon"),
    ):
        with pytest.raises(ValueError, match=words):
            Execution.of(settings)


@pytest.mark.parametrize(
    ("delay_s", "execute_steps", "words"),
    [
        (
            0.3,
            2,
            (
                "execute_steps is 2; allowed with a delay of 3 control periods and chunks of 8 "
                "actions: 3 to 5"
            ),
        ),
        (0.3, 6, "execute_steps is 6; allowed .* chunks of 8 actions: 3 to 5"),
        (0.1, None, "execute_steps is 8; allowed .* chunks of 8 actions: 1 to 7"),
        (
            0.5,
            5,
            "chunks of 8 actions: none.*at most 4 control periods, or use execution=stop_and_go",
        ),
    ],
)
def test_plans_that_would_come_too_late_are_refused_at_once(
    delay_s: float, execute_steps: int | None, words: str
) -> None:
    """The published condition, d <= s <= H - d, whatever is done with overlapping plans."""
    for name in ("receding_horizon", "temporal_ensembling", "real_time_chunking"):
        executed = Execution(name, delay_s=delay_s).session(
            Keeping(8), 0, execute_steps=execute_steps
        )
        with pytest.raises(ValueError, match=words):
            executed.plan(seen(0))
    assert (
        len(
            Execution("stop_and_go", delay_s=delay_s)
            .session(Keeping(8), 0, execute_steps=None)
            .plan(seen(0))
            .time
        )
        == 8
    )


def test_a_horizon_longer_than_the_chunk_is_refused() -> None:
    executed = Execution("stop_and_go").session(Scripted(8), 0, execute_steps=9)
    with pytest.raises(
        ValueError,
        match="execute_steps is 9; allowed: up to 8, the actions of a chunk",
    ):
        executed.plan(seen(0))
    with pytest.raises(ValueError, match="execute_steps is 0; allowed: 1 and above, or null"):
        Execution().session(Scripted(8), 0, execute_steps=0)


def test_a_policy_of_three_methods_can_do_all_but_real_time_chunking() -> None:
    for name in NAMES[:3]:
        assert len(Execution(name).session(Scripted(8), 0, execute_steps=4).plan(seen(0)).time) in {
            4,
            8,
        }
    with pytest.raises(ValueError, match="ScriptedSession supports no action prefix"):
        Execution("real_time_chunking").session(Scripted(8), 0, execute_steps=4)


def test_a_server_blends_for_clients_that_do_not() -> None:
    combined = CombiningPolicy(Scripted(8), Execution("temporal_ensembling", decay=0.5))
    assert combined.contract == CONTRACT
    by_hand = TemporalEnsemble(Scripted(8).session(4), CONTRACT, decay=0.5)
    session = combined.session(4)
    for step in range(3):
        np.testing.assert_array_equal(
            session.plan(seen(step)).action, by_hand.plan(seen(step)).action
        )
    going_on, here = (
        CombiningPolicy(Keeping(8), Execution("real_time_chunking", delay_s=2 / HZ)).session(1),
        RealTimeChunking(Keeping(8).session(1), CONTRACT, lambda: 2),
    )
    for step in (0, 3, 6):
        np.testing.assert_array_equal(
            going_on.plan(seen(step)).action, here.plan(seen(step)).action
        )
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


def test_what_is_written_down() -> None:
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


def test_it_needs_no_torch() -> None:
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
