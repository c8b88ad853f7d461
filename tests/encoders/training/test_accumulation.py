"""Parts of a batch, and processes that share a batch, give the gradients of the whole."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.encoders.training import parallel_training
from torch import Tensor, nn

from stringline.encoders.training.interfaces import Batch, Callbacks
from stringline.encoders.training.monitor import History
from stringline.encoders.training.optimisation import split
from stringline.encoders.training.trainer import Trainer

SOURCE = Path(__file__).parents[3] / ".src"
SCRIPT = Path(parallel_training.__file__)


class Masked(nn.Module):
    """A mean over a mask, as the losses of policies, without random draws."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def loss(self, batch: Batch) -> Tensor:
        error = ((self.layer(batch["x"]) - batch["y"]) ** 2).sum(dim=1)
        return (error * batch["mask"]).sum() / batch["mask"].sum().clamp(min=1)


class Rows:
    """Batches of 8 rows with very different masks, which are nearly empty in the first half."""

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Batch]:
        for step in range(first_step, last_step):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(8, 3, generator=generator)
            mask = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1.0])
            yield {"x": x, "y": x[:, :2] * torch.arange(1.0, 9.0)[:, None], "mask": mask}


def counted(batch: Batch) -> Tensor:
    return batch["mask"].sum()


def train(
    folder: Path, accumulate: int, callbacks: Callbacks | None = None
) -> tuple[nn.Module, History]:
    model = Masked()
    trainer = Trainer(
        steps=20, batch_size=8, accumulate=accumulate, precision="no", learning_rate=0.02
    )
    return model, trainer.fit(
        model, Rows(), folder / str(accumulate), save_model=lambda _: None, callbacks=callbacks
    )


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_parts_equal_the_whole(tmp_path: Path, parts: int) -> None:
    """Weights, losses and gradient norms, also for parts of unequal sizes and weights."""
    callbacks = Callbacks(loss_weight=counted)
    (whole, one) = train(tmp_path, 1, callbacks)
    (divided, other) = train(tmp_path, parts, callbacks)
    torch.testing.assert_close(
        dict(divided.state_dict()), dict(whole.state_dict()), atol=1e-6, rtol=1e-5
    )
    for key in ("loss", "gradient_norm"):
        found, expected = (
            [row[key] for row in history.rows if key in row] for history in (other, one)
        )
        assert len(found) == 20
        assert found == pytest.approx(expected, rel=1e-4)


def test_the_weights_matter(tmp_path: Path) -> None:
    """A mean of means without weights is another loss, so the test above can fail."""
    (whole, _), (divided, _) = train(tmp_path, 1), train(tmp_path, 2)
    assert not torch.allclose(
        next(iter(divided.parameters())), next(iter(whole.parameters())), atol=1e-3
    )


def test_a_batch_is_split_into_the_same_rows_of_all_keys() -> None:
    batch = {"x": torch.arange(7), "y": torch.arange(14).reshape(7, 2)}
    parts = split(batch, 3)
    assert [len(part["x"]) for part in parts] == [3, 2, 2]
    assert all(torch.equal(part["y"][:, 0], 2 * part["x"]) for part in parts)
    assert len(split(batch, 9)) == 7
    assert split(batch, 1) == [batch]


def parallel(directory: Path, size: int, *more: str) -> "subprocess.CompletedProcess[str]":
    """Runs the script in two processes, which communicate over loopback only."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [sys.executable, *launch, str(SCRIPT), str(directory), str(size), *more],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
def test_two_processes_equal_one_with_the_larger_batch(tmp_path: Path) -> None:
    """Both with and without accumulation; the weight of a batch differs between the processes.

    What a loss draws differs between processes, so it is compared without draws: the model draws
    none.
    """
    parallel_training.main(tmp_path / "one", 8)
    done = parallel(tmp_path / "two", 4)
    assert done.returncode == 0, done.stderr
    for parts in ("1", "2"):
        one, two = (
            load_file(tmp_path / name / parts / "weights.safetensors") for name in ("one", "two")
        )
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, atol=1e-6, rtol=1e-5)
    assert (tmp_path / "two" / "1" / "history_1.jsonl").is_file()
    assert not (tmp_path / "one" / "1" / "history_1.jsonl").exists()


@pytest.mark.stress
def test_machines_with_different_states_are_reported(tmp_path: Path) -> None:
    assert parallel(tmp_path / "run", 4).returncode == 0
    apart = parallel(tmp_path / "run", 4, "apart")
    assert apart.returncode
    assert "Process 1 finds a state after 0 steps in" in apart.stderr
    assert (
        "other processes one after 12. Put the output into a directory that all machines share."
        in apart.stderr
    )
