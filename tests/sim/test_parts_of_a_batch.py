"""Every kind of policy learns the same from a batch and from unequal parts of it."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tests.sim.points import CONTRACT, MODEL, fill
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stringline import EpisodeStore, Windows
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.training.interfaces import Batch, LossWeight
from stringline.encoders.training.optimisation import LossModule, accumulate, examples, split
from stringline.policies.checkpoints.load import build_policy
from stringline.sim.training.training_data import tensors

MEMORY = MODEL["observation_encoder"] | {"joint_dropout": 0.3}
DENOISING = {key: MODEL[key] for key in ("chunk", "dim", "depth", "heads", "sampling_steps")} | {
    "observation_encoder": MEMORY
}
SIZES = {
    "chunk": 4,
    "dim": 32,
    "heads": 2,
    "feed_forward": 32,
    "encoder_layers": 1,
    "latent": 4,
    "observation_encoder": MEMORY,
}
KINDS: dict[str, dict[str, Any]] = {
    "diffusion.DiffusionPolicy": DENOISING,
    "flow.FlowPolicy": DENOISING,
    "energy.EnergyPolicy": DENOISING | {"ranking_weight": 1.0, "negatives": 2},
    "act.ActPolicy": SIZES
    | {"dropout": 0.0},  # Dropout draws inside of attention, where no test reaches.
}
# Steps within episodes of five: these windows of four actions have 4, 4, 3 | 2, 1 | 1, 1 within
# them.
STEPS, PARTS = (0, 1, 2, 3, 4, 4, 4), 3

Drawing = Callable[..., Tensor]


class DrawnByExample(TorchFunctionMode):
    """In this context, the random numbers of an example depend on its content alone."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        rows = zip(*(value.numpy() for value in batch.values()), strict=True)
        self.seeds = [
            zlib.crc32(b"".join(np.ascontiguousarray(entry).tobytes() for entry in row))
            for row in rows
        ]
        self.draws = 0

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        arguments: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:
        if function not in (torch.rand, torch.randn, torch.randn_like, torch.randint):
            return function(*arguments, **(named or {}))
        self.draws += 1
        with torch.random.fork_rng(devices=()):
            drawn: Tensor = function(*arguments, **(named or {}))
        assert len(drawn) == len(self.seeds), "draws have the examples on their first axis"
        for row, seed in zip(drawn, self.seeds, strict=True):
            self._fill(function, row, arguments, torch.Generator().manual_seed(seed + self.draws))
        return drawn

    def _fill(
        self, function: Drawing, row: Tensor, arguments: tuple[Any, ...], generator: torch.Generator
    ) -> None:
        if function is torch.randint:
            row.random_(0, arguments[0], generator=generator)
        elif function is torch.rand:
            row.uniform_(generator=generator)
        else:
            row.normal_(generator=generator)


class ByExample(nn.Module):
    """A policy whose loss draws by example."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def loss(self, batch: Batch) -> Tensor:
        before = torch.get_rng_state()
        with DrawnByExample(batch) as drawn:
            loss: Tensor = self.policy.loss(batch)  # type: ignore[operator]  # nn.Module types every attribute so.
        assert drawn.draws > 1
        assert torch.equal(torch.get_rng_state(), before), "something was drawn in another way"
        return loss


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    store = EpisodeStore.create(tmp_path_factory.mktemp("points") / "store")
    fill(store, range(len(STEPS)))
    return store


@pytest.fixture(scope="module")
def batch(store: EpisodeStore) -> Batch:
    windows = Windows(store, chunk=4, cameras=["overhead"])
    chosen = [
        np.flatnonzero((windows.episode == episode) & (windows.step == step))[0]
        for episode, step in enumerate(STEPS)
    ]
    return tensors(windows, np.array(chosen))


def learned(
    policy: nn.Module, parts: list[Batch], loss_weight: LossWeight | None
) -> tuple[float, Tensor]:
    """Returns the loss of a batch in parts, and its gradients."""
    policy.zero_grad()
    loss = accumulate(
        Accelerator(cpu=True),
        LossModule(ByExample(policy)),
        parts,
        bf16=False,
        loss_weight=loss_weight,
    )
    gradients = [
        torch.zeros_like(each) if each.grad is None else each.grad for each in policy.parameters()
    ]
    return loss.item(), torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("kind", KINDS)
def test_unequal_parts_equal_the_whole(store: EpisodeStore, batch: Batch, kind: str) -> None:
    """Loss and gradients agree; they would not with parts weighted by their number of examples."""
    parts = split(batch, PARTS)
    assert [(examples(part), int(part["action_mask"].sum())) for part in parts] == [
        (3, 11),
        (2, 3),
        (2, 2),
    ]
    torch.manual_seed(0)
    policy = build_policy(
        {"_target_": f"stringline.{kind.rpartition('.')[2]}", **KINDS[kind]},
        CONTRACT,
        Statistics.of_episodes(store.episodes()),
    )
    with torch.no_grad():  # The last layers start at zero, and would let no gradient through.
        for parameter in policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    loss, gradients = learned(policy.train(), [batch], policy.loss_weight)
    divided, sums = learned(policy, parts, policy.loss_weight)
    assert divided == pytest.approx(loss, rel=1e-5)
    distance = (sums - gradients).norm() / gradients.norm()
    assert distance < 1e-5
    otherwise, other = learned(policy, parts, None)
    assert otherwise != pytest.approx(loss, rel=1e-3)
    assert (other - gradients).norm() / gradients.norm() > 1e-2
