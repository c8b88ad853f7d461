"""Ctrl-C and SIGTERM end a run after its step, with the state to continue from."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.encoders.training.noisy_line import run, same_weights

from stringline.encoders.training.interfaces import Callbacks
from stringline.encoders.training.monitor import History
from stringline.encoders.training.stopping import Stopped, StopSignals


def send(number: int, at: int, times: int = 1) -> Callable[[int], None]:
    def before(step: int) -> None:
        for _ in range(times if step == at else 0):
            os.kill(os.getpid(), number)

    return before


@pytest.mark.parametrize(
    ("number", "code", "name"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")]
)
def test_a_run_stopped_by_a_signal_continues_to_the_same_bits(
    tmp_path: Path, number: int, code: int, name: str
) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    whole, history = run(tmp_path / "whole")
    with pytest.raises(
        Stopped, match=rf"Stopped by {name} after step 18; .*Run the same command to continue"
    ) as stopped:
        run(tmp_path / "stopped", before=send(number, 17))
    assert stopped.value.exit_code == code
    assert [path.name for path in (tmp_path / "stopped/state").iterdir()] == ["step_00000018"]
    assert handlers == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    begun: list[int] = []
    continued, later = run(tmp_path / "stopped", before=begun.append)
    assert begun[0] == 18
    assert same_weights(whole, continued)
    assert later.losses() == history.losses()


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(tmp_path, before=send(signal.SIGINT, 17, times=2))
    assert not isinstance(stopped.value, Stopped)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step_00000010"]


def test_a_signal_at_the_last_step_does_not_prevent_the_end_of_the_run(tmp_path: Path) -> None:
    _, history = run(tmp_path, before=send(signal.SIGTERM, 39))
    assert len(history.losses()) == 40


def test_an_evaluation_is_interrupted_at_once_and_repeated(tmp_path: Path) -> None:
    """The state was saved before, so the continued run starts with the missing evaluation."""
    seen: list[int] = []

    def evaluate(done: int) -> dict[str, float]:
        seen.append(done)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"success": done / 100}

    callbacks = Callbacks(evaluate=evaluate)
    with pytest.raises(Stopped, match="Stopped by SIGTERM after step 24"):
        run(tmp_path, callbacks=callbacks, evaluate_every=12)
    _, history = run(tmp_path, callbacks=callbacks, evaluate_every=12)
    assert seen == [12, 24, 24, 36, 40]
    assert history.evaluations() == [
        (done - 1, {"success": done / 100}) for done in (12, 24, 36, 40)
    ]


def test_outside_of_the_main_thread_signals_are_not_handled(tmp_path: Path) -> None:
    histories: list[History] = []
    thread = threading.Thread(target=lambda: histories.append(run(tmp_path)[1]))
    thread.start()
    thread.join()
    assert len(histories[0].losses()) == 40


def test_a_signal_is_recorded_until_the_end_of_the_step() -> None:
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM
    with StopSignals() as stop, pytest.raises(KeyboardInterrupt), stop.immediately():
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.received == signal.SIGINT
