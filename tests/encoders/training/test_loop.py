"""The training loop: a stopped run equals an uninterrupted one, and it learns."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stringline.encoders.training.history import History
from stringline.encoders.training.loop import Trainer
from stringline.encoders.training.progress import latest_state


class Line(nn.Module):
    """A line with input noise, so that random numbers matter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.drop = nn.Dropout(0.2)

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        noisy = self.drop(batch["x"] + 0.1 * torch.randn_like(batch["x"]))
        return ((self.layer(noisy) - batch["y"]) ** 2).mean()


class Points:
    """Batches on a fixed line; step n gives the same points whenever it is asked for."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at

    def stream(self, first_step: int, last_step: int, process: int = 0, processes: int = 1) -> Iterator[Mapping[str, Tensor]]:
        slope = torch.tensor([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]])
        for step in range(first_step, last_step):
            if step == self.stop_at:
                raise KeyboardInterrupt
            x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step * processes + process))
            yield {"x": x, "y": x @ slope}


def weight_sum(model: nn.Module) -> dict[str, float]:
    assert isinstance(model, Line)
    return {"weight": float(model.layer.weight.sum())}


def run(
    directory: Path, *, stop_at: int | None = None, model: nn.Module | None = None, **settings: object
) -> tuple[nn.Module, History]:
    torch.manual_seed(3)
    model = model or Line()
    trainer = Trainer(**({"steps": 40, "batch_size": 16, "save_every": 10, "probe_every": 15, "seed": 5} | settings))  # type: ignore[arg-type]
    history = trainer.fit(model, Points(stop_at), directory, save_model=lambda _: None, probe=weight_sum)
    return model, history


@pytest.mark.parametrize("stop_at", [10, 17, 33])
def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path, stop_at: int) -> None:
    whole, history = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop_at=stop_at)
    # The second model starts elsewhere: everything must come from the state on disk.
    continued, later = run(tmp_path / "stopped", model=nn.Module.apply(Line(), lambda m: None))
    for one, other in zip(whole.parameters(), continued.parameters(), strict=True):
        assert torch.equal(one, other)
    assert history.losses() == later.losses()
    assert history.probes() == later.probes()


def test_what_prepares_batches_depends_on_the_step_alone(tmp_path: Path) -> None:
    """Its draws differ from step to step and from those of the loss, and are the same after a stop."""

    def train(name: str, stop_at: int | None = None) -> tuple[list[tuple[int, float]], dict[int, Tensor]]:
        drawn: dict[int, Tensor] = {}
        torch.manual_seed(3)

        def noisy(batch: Mapping[str, Tensor], generator: torch.Generator) -> Mapping[str, Tensor]:
            drawn[len(drawn)] = torch.randn(16, 3, generator=generator)
            assert not torch.equal(drawn[len(drawn) - 1], torch.randn(16, 3)), "the loss would see the same noise"
            return {**batch, "x": batch["x"] + drawn[len(drawn) - 1]}

        trainer = Trainer(steps=20, batch_size=16, save_every=5, precision="no")
        history = trainer.fit(Line(), Points(stop_at), tmp_path / name, save_model=lambda _: None, prepare=noisy)
        return history.losses(), drawn

    losses, drawn = train("whole")
    with pytest.raises(KeyboardInterrupt):
        train("stopped", stop_at=12)
    later, drawn_later = train("stopped")
    assert later == losses
    assert torch.equal(drawn_later[0], drawn[10])
    assert not torch.equal(drawn[0], drawn[1])


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    again, history = run(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert len(history.losses()) == 40


def test_it_learns(tmp_path: Path) -> None:
    _, history = run(tmp_path, steps=300, learning_rate=0.05)
    losses = [loss for _, loss in history.losses()]
    assert sum(losses[-20:]) < 0.2 * sum(losses[:20])


def test_only_the_newest_state_is_kept(tmp_path: Path) -> None:
    run(tmp_path)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step_00000040"]


def test_a_broken_state_is_named(tmp_path: Path) -> None:
    run(tmp_path)
    state = latest_state(tmp_path)
    assert state is not None
    (state / "state.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(ValueError, match=r"cannot be continued from .*step_00000040.*Remove that folder"):
        run(tmp_path)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    model = Line()
    with torch.no_grad():
        model.layer.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match=r"loss is nan at step 0"):
        run(tmp_path, model=model)


def test_vectors_and_spared_parameters_have_no_weight_decay(tmp_path: Path) -> None:
    class Spared(Line):
        def __init__(self) -> None:
            super().__init__()
            self.frequencies = nn.Parameter(torch.ones(2, 2))

        def no_weight_decay(self) -> set[str]:
            return {"frequencies"}

    decayed, spared = Trainer(steps=1, batch_size=1).parameter_groups(Spared())
    assert [tuple(p.shape) for p in decayed["params"]] == [(2, 3)]  # type: ignore[attr-defined]
    assert sorted(tuple(p.shape) for p in spared["params"]) == [(2,), (2, 2)]  # type: ignore[attr-defined]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"trainer.steps is 0; it must be at least 1"):
        Trainer(steps=0, batch_size=1)
    with pytest.raises(ValueError, match=r"precision is 'fp8'; allowed: 'auto', 'bf16', 'no'"):
        Trainer(steps=1, batch_size=1, precision="fp8")


def test_the_history_drops_a_line_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"step": 0, "loss": 2.0}\n{"step": 1, "lo')
    history = History.open(file)
    history.add(step=1, loss=1.0)
    history.close()
    again = History.open(file)
    again.close()
    assert again.losses() == [(0, 2.0), (1, 1.0)]


PARALLEL = """
import sys, torch
from pathlib import Path
from torch import nn
from stringline.encoders.training.loop import Trainer

class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def loss(self, batch):
        return ((self.layer(batch["x"]) - batch["y"]) ** 2).mean()

class Rows:
    def __init__(self, size):
        self.size = size
    def stream(self, first_step, last_step, process=0, processes=1):
        for step in range(first_step, last_step):
            rows = torch.arange(8) + 8 * step
            rows = rows[self.size * process : self.size * (process + 1)]
            x = torch.stack([torch.sin(rows * 1.0), torch.cos(rows * 0.7), rows * 0.01], dim=1)
            yield {"x": x, "y": x[:, :2] * 3}

torch.manual_seed(0)
trainer = Trainer(steps=12, batch_size=int(sys.argv[2]), save_every=6, precision="no", learning_rate=0.01)
save = lambda model: torch.save(model.state_dict(), Path(sys.argv[1]) / "weights")
trainer.fit(Line(), Rows(int(sys.argv[2])), Path(sys.argv[1]), save_model=save)
"""


def test_two_processes_equal_one_with_the_larger_batch(tmp_path: Path) -> None:
    script = tmp_path / "parallel.py"
    script.write_text(PARALLEL)
    source = str(Path(__file__).parents[3] / ".src")
    environment = os.environ | {"PYTHONPATH": source, "GLOO_SOCKET_IFNAME": "lo"}  # The two talk over loopback only.
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    weights = []
    for name, command, size in (("one", [sys.executable], 8), ("two", launch, 4)):
        (tmp_path / name).mkdir()
        subprocess.run([*command, str(script), str(tmp_path / name), str(size)], env=environment, check=True, timeout=100)
        weights.append(torch.load(tmp_path / name / "weights", weights_only=True))
    for name, one in weights[0].items():
        torch.testing.assert_close(one, weights[1][name], atol=1e-6, rtol=1e-5)
