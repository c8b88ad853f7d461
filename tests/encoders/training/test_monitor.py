"""Ctrl-C and SIGTERM end a run after its step, with the state to continue from.

Metrics, validation, evaluation and kept models of a training run.
"""

import copy
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from tests.encoders.training.noisy_line import Line, Points, run, same_weights
from torch import nn

from stringline.encoders.training.interfaces import Batch, Callbacks
from stringline.encoders.training.monitor import History, Meter, Stopped, StopSignals, metric_lines
from stringline.encoders.training.trainer import ValidationLoss


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


def held_out() -> Iterator[Batch]:
    return Points().stream(1000, 1003)


def test_the_validation_loss_draws_the_same_noise_every_time() -> None:
    """The loss is the mean over its batches, and the state of the generator is restored."""
    torch.manual_seed(0)
    model = Line().eval()
    validate = ValidationLoss(held_out, seed=7)
    before = torch.get_rng_state()
    first = validate(model)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert validate(model) == first
    assert ValidationLoss(held_out, seed=8)(model) != first
    losses = []
    for number, batch in enumerate(held_out()):
        torch.manual_seed(7 + number)
        losses.append(model.loss(batch).item())
    assert first == pytest.approx(sum(losses) / 3)


def test_batches_have_their_weight_in_the_validation_loss() -> None:
    model = Line().eval()
    large, second, _ = held_out()
    small = {key: value[:4] for key, value in second.items()}
    means = [ValidationLoss(lambda each=each: iter([each]))(model) for each in (large, small)]  # type: ignore[misc]
    shifted = ValidationLoss(lambda: iter([small]), seed=1)(model)
    both = ValidationLoss(lambda: iter([large, small]))(model)
    assert both == pytest.approx((16 * means[0] + 4 * shifted) / 20)
    assert ValidationLoss(
        lambda: iter([large, small]), loss_weight=lambda batch: torch.tensor(len(batch["x"]) == 16)
    )(model) == pytest.approx(means[0])
    with pytest.raises(ValueError, match="at least one batch"):
        ValidationLoss(lambda: iter(()))(model)


def test_validation_does_not_change_the_training(tmp_path: Path) -> None:
    plain, history = run(tmp_path / "plain")
    callbacks = Callbacks(
        validate=ValidationLoss(held_out),
        evaluate=lambda done: {"success": 0.5},
        keep=lambda *_: None,
    )
    watched, other = run(tmp_path / "watched", callbacks=callbacks, evaluate_every=7)
    assert same_weights(plain, watched)
    assert other.losses() == history.losses()
    assert [step for step, _ in other.validations()] == [6, 13, 14, 20, 27, 29, 34, 39]
    assert other.validations()[-1][1] < other.validations()[0][1], "the line was learned"


def keep_into(kept: dict[str, tuple[int, nn.Module]]) -> Callbacks:
    def keep(model: nn.Module, name: str, done: int) -> None:
        kept[name] = done, copy.deepcopy(model)

    return Callbacks(keep=keep)


def test_the_latest_model_is_the_average_of_the_last_state(tmp_path: Path) -> None:
    kept: dict[str, tuple[int, nn.Module]] = {}
    model, _ = run(tmp_path, callbacks=keep_into(kept))
    assert list(kept) == ["latest"]
    assert kept["latest"][0] == 40
    assert same_weights(kept["latest"][1], model)
    assert not kept["latest"][1].training


def test_the_best_model_is_the_one_with_the_smallest_validation_loss(tmp_path: Path) -> None:
    kept: dict[str, tuple[int, nn.Module]] = {}
    losses = iter([3.0, float("nan"), 1.0, 1.0, 2.0])
    seen: list[float] = []

    def validate(model: nn.Module) -> float:
        seen.append(next(model.parameters()).sum().item())
        return next(losses)

    callbacks = Callbacks(keep=keep_into(kept).keep, validate=validate)
    _, history = run(tmp_path, callbacks=callbacks, probe_every=9)
    assert history.best_step() == 26
    assert kept["best"][0] == 27
    assert next(kept["best"][1].parameters()).sum().item() == seen[2]


def test_models_are_compared_by_success_then_by_validation_loss(tmp_path: Path) -> None:
    rows = [
        {"step": 9, "validation": 0.1},
        {"step": 19, "validation": 0.4},
        {"step": 19, "evaluation": {"success": 0.5}},
        {"step": 29, "validation": 0.3},
        {"step": 29, "evaluation": {"success": 0.5}},
        {"step": 39, "evaluation": {"success": 0.2}},
    ]
    best = []
    for count in range(len(rows) + 1):
        history = History.open(tmp_path / f"{count}.jsonl")
        for row in rows[:count]:
            history.add(**row)  # type: ignore[arg-type]
        best.append(history.best_step())
        history.close()
    assert best == [None, 9, 9, 19, 19, 29, 29]


def test_the_history_records_all_metrics(tmp_path: Path) -> None:
    _, history = run(tmp_path, callbacks=Callbacks(validate=lambda model: 1.5))
    steps = [row for row in history.rows if "loss" in row]
    assert len(steps) == 40
    assert all(row["gradient_norm"] > 0 for row in steps)
    looked = [row for row in history.rows if "validation" in row]
    assert [row["step"] for row in looked] == [14, 29, 39]
    assert all(
        row["speed"]["samples_per_s"] > 0 and 0 <= row["speed"]["waiting"] <= 1 for row in looked
    )


def test_metrics_are_logged_from_the_first_step_of_a_continued_run(tmp_path: Path) -> None:
    got: list[tuple[int, dict[str, float]]] = []
    begun: list[int] = []

    class Log:
        def __init__(self, *, directory: Path, first_step: int) -> None:
            begun.append(first_step)

        def log(self, step: int, values: Mapping[str, float]) -> None:
            got.append((step, dict(values)))

        def close(self) -> None:
            begun.append(-1)

    def evaluate(done: int) -> dict[str, float]:
        return {"success": 0.25}

    callbacks = Callbacks(
        logger=Log, probe=lambda model: {"seen": 0.5}, validate=lambda model: 2.0, evaluate=evaluate
    )
    _, history = run(tmp_path, callbacks=callbacks, evaluate_every=20, log_every=8)
    run(tmp_path, callbacks=callbacks, evaluate_every=20, log_every=8)
    assert begun == [0, -1, 40, -1]
    figures = {"loss", "gradient_norm", "learning_rate", "samples_per_s", "waiting"}
    losses = {step: values for step, values in got if "loss" in values}
    assert list(losses) == [0, 8, 16, 24, 32]
    assert all(set(values) == figures for values in losses.values())
    assert losses[16]["loss"] == dict(history.losses())[16]
    assert (19, {"evaluation/success": 0.25}) in got
    assert (14, {"held_out/seen": 0.5, "held_out/validation_loss": 2.0}) in got


def test_the_meter_separates_waiting_from_working(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 11.0, 14.0, 20.0, 21.0, 24.0, 30.0])
    monkeypatch.setattr(
        "stringline.encoders.training.monitor.time.perf_counter", lambda: next(clock)
    )
    meter = Meter(8)
    assert (meter.samples_per_s, meter.waiting) == (0.0, 0.0)
    for _ in meter.waits(
        iter("ab")
    ):  # Each is requested at 10 and 20, arrives a second later, and is processed after 4.
        meter.step_done()
    assert meter.samples_per_s == pytest.approx(2 * 8 / 8)
    assert meter.waiting == pytest.approx(0.25)


def test_metrics_of_a_group_are_a_line_of_their_own() -> None:
    found = {"explained": 0.25, "mrad/1": 10.04, "mrad/last": 70.0, "mrad_hold/1": 29.0}
    assert metric_lines(found) == [
        "explained 0.250",
        "mrad 1: 10.0, last: 70.0",
        "mrad_hold 1: 29.0",
    ]
    assert metric_lines({"mrad/1": 1.0}) == ["mrad 1: 1.0"]
    assert metric_lines({}) == []
