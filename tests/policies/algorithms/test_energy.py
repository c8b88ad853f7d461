"""The energy policy: ranking, choice, Langevin steps, and improvement of its proposal."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from stringline import ChunkPolicy, ConditioningTokens, Contract, EnergyPolicy
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.energy import choose, langevin, ranking_loss, sum_of_evidence
from stringline.policies.checkpoints.load import build_policy

MakeBatch = Callable[[int], dict[str, Tensor]]
MakeEnergy = Callable[..., EnergyPolicy]


@pytest.fixture
def make_energy(make_policy: Callable[..., ChunkPolicy]) -> MakeEnergy:
    def make(*overrides: str) -> EnergyPolicy:
        policy = make_policy("+policy=energy", *overrides)
        assert isinstance(policy, EnergyPolicy)
        return policy

    return make


def test_langevin_steps_draw_from_the_density_under_inference_mode() -> None:
    """N(2, 0.5^2) in three numbers; the fourth is held. Gradients do not outlive the walk."""
    weight = nn.Parameter(torch.tensor(2.0))
    scale = torch.tensor([[0.5, 0.5, 0.5, 0.0]])
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        start = torch.full((4000, 1, 1, 4), -0.5)
        drawn = langevin(
            lambda chunk: -((chunk - weight) ** 2).sum(dim=(-2, -1)) / (2 * 0.5**2),
            start,
            scale=scale,
            steps=60,
            generator=generator,
        )
    assert drawn[..., :3].mean().item() == pytest.approx(2.0, abs=0.02)
    assert drawn[..., :3].std().item() == pytest.approx(0.5, abs=0.015)
    assert torch.equal(drawn[..., 3], start[..., 3])
    assert not drawn.requires_grad
    assert weight.grad is None


def test_langevin_steps_stay_where_the_density_is_positive() -> None:
    """Far too long steps are rejected."""
    drawn = langevin(
        lambda chunk: (chunk.clamp(max=1).log() * 3).sum(dim=(-2, -1)),
        torch.full((100, 1, 1, 1), 0.5),
        scale=torch.tensor(1.5),
        steps=20,
        generator=torch.Generator().manual_seed(0),
    )
    assert (drawn > 0).all()


def test_ranking_finds_the_log_odds() -> None:
    """For an expert N(1, 1) and a proposal N(0, 1) they are y - 1/2 up to a constant."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4000, 5, generator=generator)
    draws[:, 0] += 1
    slope, bend = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.LBFGS([slope, bend], line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = ranking_loss(slope * draws + bend * draws**2, torch.full((4000,), 48))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)
    assert slope.item() == pytest.approx(1, abs=0.08)
    assert bend.item() == pytest.approx(0, abs=0.04)


def test_the_weight_of_an_observation_is_its_number_of_actions() -> None:
    log_odds = torch.tensor([[2.0, 0.0, 0.0], [0.0, 9.0, 9.0]])
    both, one, other, none = (
        ranking_loss(log_odds, torch.tensor(counts)).item()
        for counts in ([6, 2], [6, 0], [0, 2], [0, 0])
    )
    assert one == pytest.approx(math.log(math.exp(2) + 2) - 2)
    assert both == pytest.approx((6 * one + 2 * other) / 8)
    assert other > one
    assert none == 0
    assert ranking_loss(torch.zeros(7, 5), torch.arange(7)).item() == pytest.approx(math.log(5))
    assert sum_of_evidence(torch.ones(2, 3, 4, 4)).tolist() == [[4.0] * 3] * 2


def test_the_choice_follows_the_energy() -> None:
    log_odds = torch.tensor([[0.0, 1.0, -1.0]])
    generator = torch.Generator().manual_seed(0)
    chosen = choose(log_odds.expand(20_000, 3), 1.0, generator)
    shares = torch.bincount(chosen, minlength=3) / 20_000
    torch.testing.assert_close(shares, log_odds.softmax(dim=1)[0], rtol=0, atol=0.015)
    assert choose(log_odds, 0.0, generator).tolist() == [1]


def test_a_constant_energy_changes_no_mode(make_energy: MakeEnergy) -> None:
    """With log odds of zero the choice is uniform and Langevin steps keep y near its proposal."""
    policy = make_energy("policy.refinement_steps=20", "policy.observation_encoder.joints=tokens")
    assert isinstance(policy.energy, nn.Module)
    for name in ("read_action.weight", "read_action.bias"):
        nn.init.zeros_(policy.energy.get_parameter(name))
    proposed = torch.full((200, 1, 8, 14), 0.5)
    judged = policy.energy.precompute(torch.zeros(200, 1, 32))
    with torch.inference_mode():
        refined = policy.refine(
            0.8 * proposed, proposed, judged, None, torch.Generator().manual_seed(0), None
        )
    assert refined.mean().item() == pytest.approx(0.4, abs=0.01)
    assert refined.std().item() == pytest.approx(0.2, abs=0.02)


def test_the_energy_has_no_gradient_to_the_proposal(
    make_energy: MakeEnergy, make_batch: MakeBatch
) -> None:
    policy, batch = make_energy(), make_batch(2)
    conditioning, action = (
        policy.observation_encoder(batch),
        policy.action_range.normalise(batch["action"]),
    )
    policy.chunk_ranking(conditioning, action, batch["action_mask"]).backward()  # type: ignore[no-untyped-call]
    assert isinstance(policy.energy, nn.Module)
    assert isinstance(policy.denoiser, nn.Module)
    assert all(parameter.grad is None for parameter in policy.denoiser.parameters())
    assert all(parameter.grad is not None for parameter in policy.energy.parameters())
    policy.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in policy.parameters())


def test_a_plan_without_a_camera_is_finite(make_energy: MakeEnergy, make_batch: MakeBatch) -> None:
    batch = make_batch(2) | {"present/wrist_left": torch.tensor([True, False])}
    plans = make_energy().predict(batch, torch.Generator().manual_seed(0))
    assert plans.isfinite().all()


def on_two_arcs(count: int, generator: torch.Generator) -> Tensor:
    """Draws chunks (count, 2, 14): 3 of 10 on one arc, the others on another, in one plane."""
    plane = torch.linalg.qr(torch.randn(28, 2, generator=torch.Generator().manual_seed(7)))[0]
    sign = torch.where(torch.rand(count, generator=generator) < 0.3, 1.0, -1.0)
    angle = math.pi * torch.rand(count, generator=generator)
    place = torch.stack((sign * angle.cos() + 0.5 * sign, sign * angle.sin()), dim=1)
    return (1.5 * place @ plane.T + 0.02 * torch.randn(count, 28, generator=generator)).reshape(
        count, 2, 14
    )


def energy_distance(one: Tensor, other: Tensor) -> float:
    """Returns the squared energy distance of two sets (Szekely and Rizzo, 2013, equation 2.5)."""
    one, other = one.flatten(1), other.flatten(1)

    def within(points: Tensor) -> Tensor:
        return torch.cdist(points, points).sum() / (len(points) * (len(points) - 1))

    return float(2 * torch.cdist(one, other).mean() - within(one) - within(other))


@pytest.mark.slow
def test_the_policy_improves_its_coarse_proposal(
    configuration: Callable[..., dict[str, object]], contract: Contract, statistics: Statistics
) -> None:
    """The flow has only two steps; after ranking and refining chunks are closer to the data."""
    sizes = (
        "policy.chunk=2",
        "policy.dim=64",
        "policy.depth=2",
        "policy.noise_samples=4",
        "policy.sampling_steps=2",
        "policy.observation_encoder.joints=tokens",
    )
    torch.manual_seed(0)
    policy = build_policy(
        configuration("+policy=energy", *sizes, "policy.ranking_weight=1"), contract, statistics
    )
    assert isinstance(policy, EnergyPolicy)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    conditioning = torch.randn(1, 3, 32, generator=generator)
    optimizer = torch.optim.AdamW(policy.parameters(), 5e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=150)
    few, mask = (
        ConditioningTokens(conditioning.expand(64, -1, -1)),
        torch.ones(64, 2, dtype=torch.bool),
    )
    for _ in range(150):
        policy.chunk_loss(few, on_two_arcs(64, generator), mask).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    many, data = (
        ConditioningTokens(conditioning.expand(1000, -1, -1)),
        on_two_arcs(1000, torch.Generator().manual_seed(100)),
    )
    with torch.inference_mode():
        precomputed = policy.denoiser.precompute(many.tokens)
        proposed = policy.propose(many, precomputed, 1, torch.Generator().manual_seed(5))[:, 0]
        chosen = policy.generate(many, torch.Generator().manual_seed(5))
    assert energy_distance(chosen, data) < 0.6 * energy_distance(proposed, data)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.negatives=0", r"negatives must be an integer of at least 1 \(got 0\)"),
        ("policy.candidates=0", r"candidates must be an integer of at least 1 \(got 0\)"),
        ("policy.final_steps=0", r"final_steps must be an integer of at least 1 \(got 0\)"),
        (
            "policy.refinement_steps=-1",
            r"refinement_steps must be an integer of at least 0 \(got -1\)",
        ),
        ("policy.temperature=-0.5", r"temperature must be a number of at least 0 \(got -0.5\)"),
        ("policy.ranking_weight=-1", r"ranking_weight must be a number of at least 0 \(got -1\)"),
        (
            "policy.refinement_noise_level=0",
            r"refinement_noise_level must be a number above 0 and at most 1 \(got 0\)",
        ),
        (
            "policy.refinement_noise_level=1.5",
            r"refinement_noise_level must be a number above 0 and at most 1 \(got 1.5\)",
        ),
        ("policy.refinement_scale=0", r"refinement_scale must be a number above 0 \(got 0\)"),
        ("policy.solver=rk4", r"no solver 'rk4'"),
    ],
)
def test_invalid_settings_are_rejected(
    make_energy: MakeEnergy, override: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_energy(override)
