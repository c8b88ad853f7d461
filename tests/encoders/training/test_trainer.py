"""The training loop: learning, and a stopped run that equals an uninterrupted one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.encoders.training.noisy_line import Line, Points, run, same_weights
from torch import Tensor, nn

from stringline.encoders.training.interfaces import Batch, Callbacks
from stringline.encoders.training.monitor import History
from stringline.encoders.training.settings import latest_state
from stringline.encoders.training.trainer import Trainer

# Losses of steps 0, 1, 20 and 39 before accumulation, compilation, validation and stops existed.
EARLIER = [10.316740989685059, 9.856908798217773, 9.119978904724121, 10.250299453735352]


def weight_sum(model: nn.Module) -> dict[str, float]:
    assert isinstance(model, Line)
    return {"weight": float(model.layer.weight.sum())}


def stop_before(stop_at: int | None) -> Callable[[int], None]:
    def stop(step: int) -> None:
        if step == stop_at:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("stop_at", [10, 17, 33])
def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path, stop_at: int) -> None:
    callbacks = Callbacks(probe=weight_sum)
    whole, history = run(tmp_path / "whole", callbacks=callbacks)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", before=stop_before(stop_at), callbacks=callbacks)
    # The second model has other weights: all must come from the state on disk.
    continued, later = run(
        tmp_path / "stopped", model=nn.Module.apply(Line(), lambda m: None), callbacks=callbacks
    )
    assert same_weights(whole, continued)
    assert history.losses() == later.losses()
    assert history.probes() == later.probes()


def test_the_preparation_of_batches_depends_on_the_step_only(tmp_path: Path) -> None:
    """Its draws differ between steps and from those of the loss, and are the same after a stop."""

    def train(
        name: str, stop_at: int | None = None
    ) -> tuple[list[tuple[int, float]], dict[int, Tensor]]:
        drawn: dict[int, Tensor] = {}
        torch.manual_seed(3)

        def noisy(batch: Batch, generator: torch.Generator) -> Batch:
            drawn[len(drawn)] = torch.randn(16, 3, generator=generator)
            assert not torch.equal(drawn[len(drawn) - 1], torch.randn(16, 3)), (
                "the loss would see the same noise"
            )
            return {**batch, "x": batch["x"] + drawn[len(drawn) - 1]}

        trainer = Trainer(steps=20, batch_size=16, save_every=5, precision="no")
        history = trainer.fit(
            Line(),
            Points(stop_before(stop_at)),
            tmp_path / name,
            save_model=lambda _: None,
            prepare=noisy,
        )
        return history.losses(), drawn

    losses, drawn = train("whole")
    with pytest.raises(KeyboardInterrupt):
        train("stopped", stop_at=12)
    later, drawn_later = train("stopped")
    assert later == losses
    assert torch.equal(drawn_later[0], drawn[10])
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("constant", ["rate", "warm-up", None])
def test_a_finished_run_continues_to_more_steps(tmp_path: Path, constant: str | None) -> None:
    """To the bits of an uninterrupted run where both schedules have been the same so far."""
    schedule: dict[str, dict[str, Any]] = {
        "rate": {"final_learning_rate": 1.0},
        "warm-up": {"warmup_steps": 20},
    }
    settings = schedule.get(str(constant), {"warmup_steps": 1})
    whole, history = run(tmp_path / "whole", **settings)
    run(tmp_path / "raised", steps=20, **settings)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "raised", before=stop_before(33), **settings)
    continued, later = run(tmp_path / "raised", **settings)
    assert [step for step, _ in later.losses()] == list(range(40))
    assert (history.losses() == later.losses()) == (constant is not None)
    assert same_weights(whole, continued) == (constant is not None)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    again, history = run(tmp_path)
    assert same_weights(first, again)
    assert len(history.losses()) == 40


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    _, history = run(tmp_path, steps=300, learning_rate=0.05)
    losses = [loss for _, loss in history.losses()]
    assert sum(losses[-20:]) < 0.2 * sum(losses[:20])


def test_losses_are_those_of_earlier_versions(tmp_path: Path) -> None:
    """The numbers of a run with the default settings are unchanged."""
    _, history = run(tmp_path, precision="no")
    losses = [loss for _, loss in history.losses()]
    assert [losses[0], losses[1], losses[20], losses[39]] == pytest.approx(EARLIER, rel=1e-6)


def test_only_the_newest_state_is_kept(tmp_path: Path) -> None:
    run(tmp_path)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step_00000040"]


def test_a_broken_state_is_named(tmp_path: Path) -> None:
    run(tmp_path)
    state = latest_state(tmp_path)
    assert state is not None
    (state / "state.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(
        ValueError, match=r"cannot continue from .*step_00000040.*Remove that folder"
    ):
        run(tmp_path)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_that_is_not_finite_stops_the_run_before_the_update(
    tmp_path: Path, accumulate: int
) -> None:
    """The message names step and broken examples; weights and saved states are unchanged."""

    class Broken(Points):
        def stream(
            self, first_step: int, last_step: int, process: int = 0, processes: int = 1
        ) -> Iterator[Batch]:
            for step, batch in enumerate(
                super().stream(first_step, last_step, process, processes), start=first_step
            ):
                if step == 13:
                    batch["x"][5, 1] = float("nan")
                    before.update(
                        {name: value.clone() for name, value in model.state_dict().items()}
                    )
                yield batch

    before: dict[str, Tensor] = {}
    torch.manual_seed(3)
    model = Line()
    trainer = Trainer(steps=40, batch_size=16, save_every=10, accumulate=accumulate)
    callbacks = Callbacks(
        describe=lambda step, process, _: [f"window {step}.{process}.{row}" for row in range(16)]
    )
    message = (
        r"loss is nan at step 13. Its examples: window 13.0.0, .* and 12 more; "
        r".*broken_batch_0.txt lists all of them. Inputs that are not finite: x of window 13.0.5. "
        r"Repair or exclude those examples. The weights .* are unchanged"
    )
    with pytest.raises(ValueError, match=message):
        trainer.fit(model, Broken(), tmp_path, save_model=lambda _: None, callbacks=callbacks)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step_00000010"]
    assert len((tmp_path / "broken_batch_0.txt").read_text().splitlines()) == 17


def test_a_loss_that_is_not_finite_for_finite_inputs_is_reported_with_a_remedy(
    tmp_path: Path,
) -> None:
    model = Line()
    with torch.no_grad():
        model.layer.weight.fill_(float("nan"))
    message = (
        r"loss is nan at step 0. All inputs are finite. Lower trainer.learning_rate or set "
        r"trainer.precision=no"
    )
    with pytest.raises(ValueError, match=message):
        run(tmp_path, model=model)


def test_gradients_that_are_not_finite_stop_the_run(tmp_path: Path) -> None:
    class Root(Line):
        def loss(self, batch: Batch) -> Tensor:
            return (self.layer(batch["x"]) * 0).abs().sqrt().sum()  # The slope of a root at 0.

    with pytest.raises(ValueError, match=r"gradient norm is nan and the loss 0.0 at step 0"):
        run(tmp_path, model=Root())


def test_vectors_and_listed_parameters_have_no_weight_decay(tmp_path: Path) -> None:
    class Spared(Line):
        def __init__(self) -> None:
            super().__init__()
            self.frequencies = nn.Parameter(torch.ones(2, 2))

        def no_weight_decay(self) -> set[str]:
            return {"frequencies"}

    decayed, spared = Trainer(steps=1, batch_size=1).parameter_groups(Spared())
    assert [tuple(p.shape) for p in decayed["params"]] == [(2, 3)]  # type: ignore[attr-defined]
    assert sorted(tuple(p.shape) for p in spared["params"]) == [(2,), (2, 2)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("computes", "precision"), [(True, "bf16"), (False, "no")])
def test_the_fingerprint_of_a_run_contains_its_precision(
    computes: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: computes)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Trainer(steps=1, batch_size=1).fingerprint()["precision"] == precision
    assert Trainer(steps=1, batch_size=1, precision="no").fingerprint()["precision"] == "no"
    assert Trainer(steps=1, batch_size=1, precision="bf16").fingerprint()["precision"] == "bf16"


def test_settings_out_of_range_are_rejected() -> None:
    with pytest.raises(
        ValueError, match=r"trainer.steps must be an integer of at least 1 \(got 0\)"
    ):
        Trainer(steps=0, batch_size=1)
    with pytest.raises(
        ValueError, match=r"trainer.seed must be an integer of at least 0 \(got -1\)"
    ):
        Trainer(steps=1, batch_size=1, seed=-1)
    with pytest.raises(ValueError, match=r"precision is 'fp8'; allowed: 'auto', 'bf16', 'no'"):
        Trainer(steps=1, batch_size=1, precision="fp8")
    with pytest.raises(ValueError, match=r"accumulate is 3; allowed: 1 to trainer.batch_size = 2"):
        Trainer(steps=1, batch_size=2, accumulate=3)
    with pytest.raises(ValueError, match=r"compile is 'yes'; allowed: 'auto', true, false"):
        Trainer(steps=1, batch_size=1, compile="yes")


def test_the_history_drops_an_incomplete_line(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"step": 0, "loss": 2.0}\n{"step": 1, "lo')
    history = History.open(file)
    history.add(step=1, loss=1.0)
    history.close()
    again = History.open(file)
    again.close()
    assert again.losses() == [(0, 2.0), (1, 1.0)]


@pytest.mark.stress
@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"
)  # PyTorch's own.
def test_a_compiled_loss_is_equal(tmp_path: Path) -> None:
    """Except for random draws, which this loss lacks.

    Names of weights stay, so states and checkpoints fit.
    """

    class Plain(Line):
        def loss(self, batch: Batch) -> Tensor:
            return ((self.layer(batch["x"]) - batch["y"]) ** 2).mean()

    def train(choice: bool) -> tuple[nn.Module, History]:
        torch.manual_seed(3)
        return run(tmp_path / str(choice), model=Plain(), compile=choice, precision="no")

    (eager, one), (compiled, other) = train(False), train(True)
    assert [loss for _, loss in one.losses()] == pytest.approx(
        [loss for _, loss in other.losses()], rel=1e-4
    )
    torch.testing.assert_close(
        dict(compiled.state_dict()), dict(eager.state_dict()), atol=1e-5, rtol=1e-4
    )
    assert (tmp_path / "True" / "state").is_dir()
