"""Every generative kind of policy learns both of two modes, in their proportion."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from stringline import ChunkPolicy, ConditioningTokens, Contract, DiffusionPolicy
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.checkpoints.load import build_policy
from stringline.policies.networks.inputs import NormalisedPrefix

# A coarse sampler favours the more frequent mode: with 5 steps by 4 of the 5 hundredths that are
# allowed, with 20 by one.
DRAWN = {5: 0.262, 10: 0.282, 20: 0.290, 100: 0.297}
SIZES = (
    "policy.chunk=2",
    "policy.sampling_steps=20",
    "policy.dim=64",
    "policy.depth=1",
    "policy.noise_samples=8",
    "policy.observation_encoder.joints=tokens",
)
# Training steps and further settings of each kind: an energy policy also proposes in training,
# which takes time.
KINDS: dict[str, tuple[int, tuple[str, ...]]] = {
    "diffusion": (300, ()),
    "flow": (500, ()),
    "energy": (400, ("policy.sampling_steps=5", "policy.negatives=2", "policy.candidates=4")),
}
SHARES = torch.tensor([0.3, 0.7])
SPREAD, BATCH, RATE = 0.05, 40, 5e-3
CONDITIONING = torch.randn(
    1, 3, 32, generator=torch.Generator().manual_seed(0)
)  # It has no effect in this test.


def modes() -> Tensor:
    """Returns the two modes, (2, 2, 14) normalised, on both sides of the middle."""
    time, phase = torch.arange(2.0)[:, None], torch.linspace(0, 3, 14)
    return torch.stack(
        (0.3 + 0.3 * torch.sin(2 * time + phase), -0.3 - 0.3 * torch.cos(3 * time - phase))
    )


def shown(count: int, generator: torch.Generator) -> Tensor:
    """Draws demonstrations, (count, 2, 14): 3 of 10 of the first mode, 7 of the second."""
    which = (torch.arange(count) >= 3 * count // 10).long()
    return modes()[which] + SPREAD * torch.randn(count, 2, 14, generator=generator)


def train(policy: ChunkPolicy, steps: int, seed: int) -> None:
    """Trains all parameters except those of the encoder."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(policy.parameters(), RATE, weight_decay=0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    conditioning, mask = (
        ConditioningTokens(CONDITIONING.expand(BATCH, -1, -1)),
        torch.ones(BATCH, 2, dtype=torch.bool),
    )
    for _ in range(steps):
        policy.chunk_loss(conditioning, shown(BATCH, generator), mask).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def drawn(policy: ChunkPolicy, count: int, prefix: NormalisedPrefix | None = None) -> Tensor:
    """Draws chunks, (count, 2, 14)."""
    with torch.inference_mode():
        return policy.generate(
            ConditioningTokens(CONDITIONING.expand(count, -1, -1)),
            torch.Generator().manual_seed(1),
            prefix,
        )


def nearest(chunks: Tensor) -> Tensor:
    """Returns which mode each chunk (B, T, A) is closest to, (B,)."""
    return ((chunks[:, None] - modes()) ** 2).sum(dim=(-2, -1)).argmin(dim=1)


@pytest.fixture
def build(
    configuration: Callable[..., dict[str, object]], contract: Contract, statistics: Statistics
) -> Callable[..., ChunkPolicy]:
    def build(*overrides: str) -> ChunkPolicy:
        built = build_policy(configuration(*overrides), contract, statistics)
        assert isinstance(built, ChunkPolicy)
        return built

    return build


def check(policy: ChunkPolicy, steps: int, seed: int) -> None:
    """Trains a policy and checks its draws."""
    train(policy, steps, seed)
    chunks = drawn(policy.eval(), 2000)
    which = nearest(chunks)
    shares = torch.bincount(which, minlength=2) / len(which)
    assert (shares - SHARES).abs().max() <= 0.05, f"the shares of the modes are {shares.tolist()}"
    for mode, expected in enumerate(modes()):
        found = chunks[which == mode]
        assert (found.mean(dim=0) - expected).abs().mean() <= 0.02
        assert (found - expected).square().mean().sqrt() <= 2 * SPREAD, (
            "chunks between the modes, or noise left in them"
        )
    # A fixed action of the rarer mode is followed by the rest of that mode.
    fixed = NormalisedPrefix(modes()[:1].expand(300, -1, -1), torch.tensor([1.0, 0.0]))
    assert (nearest(drawn(policy, 300, fixed)) == 0).float().mean() >= 0.95


# One seed of each kind takes five to ten seconds; the other two are left to `make stress`.
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.stress) for seed in (1, 2))]
)
@pytest.mark.parametrize("kind", KINDS)
def test_both_modes_are_learned(kind: str, seed: int, build: Callable[..., ChunkPolicy]) -> None:
    steps, more = KINDS[kind]
    torch.manual_seed(seed)
    check(build(f"+policy={kind}", *SIZES, *more), steps, seed)


@pytest.mark.stress  # Convolutions of two steps of time take longer than attention over them.
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_modes_are_learned_by_the_unet(seed: int, build: Callable[..., ChunkPolicy]) -> None:
    network = "_target_: stringline.UnetDenoiser, _partial_: true, down_dims: [16, 32], groups: 4"
    sizes = "condition_dim: 16, heads: 2, level_dim: 16"
    torch.manual_seed(seed)
    check(
        build(
            "+policy=diffusion",
            *SIZES,
            "policy.noise_samples=4",
            f"+policy.denoiser={{{network}, {sizes}}}",
        ),
        400,
        seed,
    )


class BestDenoiser(nn.Module):
    """Predicts the clean chunk with the smallest possible error."""

    def __init__(self, alphas_cumprod: Tensor) -> None:
        """Takes the share of signal in the variance at each level."""
        super().__init__()
        self.alphas_cumprod = alphas_cumprod

    def precompute(self, conditioning: Tensor) -> Sequence[tuple[Tensor, ...]]:
        """Ignores the conditioning tokens."""
        return []

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        precomputed: Sequence[tuple[Tensor, ...]],
        present: Tensor | None = None,
    ) -> Tensor:
        """See `Denoiser`."""
        alphas_cumprod = self.alphas_cumprod[(level * len(self.alphas_cumprod)).round().long()][
            ..., None, None
        ]
        variance = alphas_cumprod * SPREAD**2 + 1 - alphas_cumprod
        means = modes()[:, None, None]
        away = noisy - alphas_cumprod.sqrt() * means
        odds = SHARES.log()[:, None, None] - (away**2).sum(dim=(-2, -1)) / (2 * variance[..., 0, 0])
        clean = means + alphas_cumprod.sqrt() * SPREAD**2 / variance * away
        return (odds.softmax(dim=0)[..., None, None] * clean).sum(dim=0)


@pytest.mark.slow
def test_a_coarse_sampler_favours_the_more_frequent_mode(build: Callable[..., ChunkPolicy]) -> None:
    """With the best denoiser: few steps change the shares by the sampler, not by learning."""
    shares = {}
    for steps in (5, 10, 20, 100):
        policy = build("+policy=diffusion", *SIZES, f"policy.sampling_steps={steps}")
        assert isinstance(policy, DiffusionPolicy)
        policy.denoiser = BestDenoiser(policy.scheduler.alphas_cumprod)
        shares[steps] = float((nearest(drawn(policy, 20_000)) == 0).float().mean())
    assert shares == {steps: pytest.approx(expected, abs=0.01) for steps, expected in DRAWN.items()}
    assert 0.25 < shares[5] < shares[10] < shares[20] < 0.3
