"""The flow policy: path, levels, solvers."""

import math
from collections.abc import Callable, Sequence
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from stringline import ChunkPolicy, ConditioningTokens, FlowPolicy
from stringline.policies.algorithms.flow import EVALUATIONS, Solver, integrate_ode

MakeBatch = Callable[[int], dict[str, Tensor]]
MakeFlow = Callable[..., FlowPolicy]


@pytest.fixture
def make_flow(make_policy: Callable[..., ChunkPolicy]) -> MakeFlow:
    def make(*overrides: str) -> FlowPolicy:
        policy = make_policy("+policy=flow", *overrides)
        assert isinstance(policy, FlowPolicy)
        return policy

    return make


class GaussianVelocity(nn.Module):
    """The velocity that carries noise to N(0.3, 0.1^2) in every number, or to 0.3 alone."""

    def __init__(self, spread: float) -> None:
        super().__init__()
        self.spread = spread

    def precompute(self, conditioning: Tensor) -> Sequence[tuple[Tensor, ...]]:
        return []

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        precomputed: Sequence[tuple[Tensor, ...]],
        present: Tensor | None = None,
    ) -> Tensor:
        level = level[..., None, None]
        variance = (1 - level) ** 2 * self.spread**2 + level**2
        clean = 0.3 + (1 - level) * self.spread**2 / variance * (noisy - (1 - level) * 0.3)
        noise = level / variance * (noisy - (1 - level) * 0.3)
        return clean - noise


@pytest.mark.parametrize("solver", get_args(Solver))
def test_a_flow_with_the_best_network_draws_from_the_data(
    make_flow: MakeFlow, solver: Solver
) -> None:
    policy = make_flow(f"policy.solver={solver}", "policy.sampling_steps=50")
    policy.denoiser = GaussianVelocity(0.1)
    chunks = policy.generate(
        ConditioningTokens(torch.zeros(500, 1, 32)), torch.Generator().manual_seed(0)
    )
    assert abs(chunks.mean().item() - 0.3) < 0.005
    assert chunks.std().item() == pytest.approx(0.1, rel=0.1)


def test_straight_paths_need_one_step(make_flow: MakeFlow) -> None:
    policy = make_flow("policy.sampling_steps=1")
    policy.denoiser = GaussianVelocity(0.0)
    chunks = policy.generate(
        ConditioningTokens(torch.zeros(4, 1, 32)), torch.Generator().manual_seed(0)
    )
    torch.testing.assert_close(chunks, torch.full_like(chunks, 0.3), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2), ("heun", 2)])
def test_errors_of_solvers_have_the_expected_order(solver: Solver, order: int) -> None:
    """On d x / d t = cos(3 t) x, with the solution exp(sin(3 t) / 3), from t = 0.2 to 1."""
    evaluations = 0

    def velocity(chunk: Tensor, level: float) -> Tensor:
        nonlocal evaluations
        evaluations += 1
        return chunk * math.cos(3 * (1 - level))

    start = torch.ones(1, dtype=torch.float64)
    exact = math.exp((math.sin(3.0) - math.sin(0.6)) / 3)
    errors = [
        abs(integrate_ode(velocity, start, level=0.8, steps=steps, solver=solver).item() - exact)
        for steps in (40, 80)
    ]
    assert evaluations == 120 * EVALUATIONS[solver]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)


def test_levels_have_the_chosen_distribution(make_flow: MakeFlow) -> None:
    """Beta(1.5, 1) has the mean 1.5 / 2.5 and the variance 1.5 / (2.5^2 3.5)."""
    torch.manual_seed(0)
    shape, like = torch.Size((20_000, 2)), torch.zeros(())
    even, beta = (
        make_flow("policy.noise_level_distribution=uniform")._draw_levels(shape, like),
        make_flow()._draw_levels(shape, like),
    )
    assert even.mean().item() == pytest.approx(0.5, abs=0.01)
    assert beta.mean().item() == pytest.approx(0.001 + 0.999 * 0.6, abs=0.01)
    assert beta.var().item() == pytest.approx(1.5 / (2.5**2 * 3.5), abs=0.005)
    assert beta.min() >= 0.001
    assert max(even.max(), beta.max()) <= 1


def test_the_loss_is_that_of_the_velocity(make_flow: MakeFlow, make_batch: MakeBatch) -> None:
    """A network of zeros leaves the mean square of data - noise inside the episode."""
    policy, batch = make_flow("policy.noise_samples=3"), make_batch(2)
    assert isinstance(policy.denoiser, nn.Module)
    for name in ("read_action.weight", "read_action.bias"):
        nn.init.zeros_(policy.denoiser.get_parameter(name))
    batch["action_mask"][:, 6:] = False
    action = policy.action_range.normalise(batch["action"])
    torch.manual_seed(4)
    loss = policy.loss(batch)
    torch.manual_seed(4)
    noise = torch.randn(2, 3, 8, 14)
    assert loss.item() == pytest.approx(
        ((action[:, None] - noise)[:, :, :6] ** 2).mean().item(), rel=1e-5
    )
    assert policy.loss(batch | {"action_mask": torch.zeros(2, 8, dtype=torch.bool)}) == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.solver=rk4", r"no solver 'rk4'\..*Allowed: euler, heun, midpoint"),
        (
            "policy.noise_level_distribution=normal",
            r"no noise level distribution 'normal'\..*Allowed: beta, uniform",
        ),
        ("policy.sampling_steps=0", r"sampling_steps must be an integer of at least 1 \(got 0\)"),
        ("policy.noise_samples=0", r"noise_samples must be an integer of at least 1 \(got 0\)"),
        ("policy.chunk=7", r"chunk is 7; allowed: multiples of steps_per_token = 2"),
    ],
)
def test_invalid_settings_are_rejected(make_flow: MakeFlow, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_flow(override)
