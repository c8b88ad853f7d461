"""Each kind of normalisation: range, inverse, and its restoration from a checkpoint."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import KeyStatistics, Statistics, statistics_of
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.diffusion import DiffusionPolicy
from stringline.policies.checkpoints.load import build_policy, load_policy, save_policy
from stringline.policies.observation.normaliser import (
    MeanStdNormaliser,
    MinMaxNormaliser,
    NormaliserFactory,
    QuantileNormaliser,
)
from stringline.policies.observation.observation_encoder import ObservationEncoder

KINDS: list[NormaliserFactory] = [MinMaxNormaliser, MeanStdNormaliser, QuantileNormaliser]


@pytest.fixture
def rows() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Three channels: normally distributed, constant, and with a far outlier."""
    random = np.random.default_rng(0)
    drawn = np.stack(
        (random.normal(3.0, 2.0, 5000), np.full(5000, 0.7), random.uniform(-1, 1, 5000)), axis=1
    )
    drawn[17, 2] = 40.0
    return drawn


@pytest.fixture
def of_rows(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> KeyStatistics:
    return statistics_of(lambda: iter([rows[:100], rows[100:]]))


@pytest.mark.parametrize("kind", KINDS)
def test_restore_undoes_normalise(kind: NormaliserFactory, of_rows: KeyStatistics) -> None:
    normaliser = kind(of_rows)
    values = 10 * torch.randn(50, 7, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        normaliser.restore(normaliser.normalise(values)), values, rtol=1e-5, atol=1e-5
    )


def test_each_kind_has_the_stated_range(
    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]], of_rows: KeyStatistics
) -> None:
    values = torch.from_numpy(rows).float()
    ranged = MinMaxNormaliser(of_rows).normalise(values)
    np.testing.assert_allclose(ranged.amin(0)[[0, 2]], -1, atol=1e-5)
    np.testing.assert_allclose(ranged.amax(0)[[0, 2]], 1, atol=1e-5)
    scaled = MeanStdNormaliser(of_rows).normalise(values)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(0)[[0, 2]], 1, atol=1e-3)
    inner = QuantileNormaliser(of_rows).normalise(values)
    # The stated error of the quantiles, a 4096th of the range, is that of 2 % of the rows where
    # they are dense.
    assert ((inner[:, 0].abs() <= 1).float().mean() - 0.98).abs() < 2e-3
    expected = np.quantile(rows, [0.01, 0.99], axis=0, method="higher")
    error = (rows.max(0) - rows.min(0)) / 4096
    assert (
        np.abs(QuantileNormaliser(of_rows).low.numpy() - expected[0])[[0, 2]] < error[[0, 2]] + 1e-6
    ).all()
    assert (
        np.abs(QuantileNormaliser(of_rows).high.numpy() - expected[1])[[0, 2]]
        < error[[0, 2]] + 1e-6
    ).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_of_a_constant_channel_is_not_amplified(
    kind: NormaliserFactory, of_rows: KeyStatistics
) -> None:
    """A constant is the middle of its range, whose width is the floor."""
    normal = kind(of_rows).normalise(torch.tensor([[0.0, 0.7, 0.0], [0.0, 0.701, 0.0]]))[:, 1]
    assert normal[0].abs() < 1e-4
    assert normal[1] == pytest.approx(0.001 / 0.025, rel=1e-2)


def test_clipping_limits_values_to_the_range(of_rows: KeyStatistics) -> None:
    clipped, free = QuantileNormaliser(of_rows, clip=True), QuantileNormaliser(of_rows)
    outlier = torch.tensor([3.0, 0.7, 40.0])
    assert clipped.normalise(outlier)[2] == 1
    assert free.normalise(outlier)[2] > 30
    assert clipped.reach == 1
    assert free.reach == pytest.approx(float(free.normalise(outlier)[2]), rel=1e-5)
    assert clipped.restore(clipped.normalise(outlier))[2] == pytest.approx(float(clipped.high[2]))
    with pytest.raises(ValueError, match=r"floor must be a number above 0 \(got 0\)"):
        MinMaxNormaliser(of_rows, floor=0)


@pytest.mark.parametrize("name", ["MeanStdNormaliser", "QuantileNormaliser"])
def test_a_checkpoint_keeps_its_normalisation(
    name: str,
    configuration: Callable[..., dict[str, object]],
    contract: Contract,
    statistics: Statistics,
    tmp_path: Path,
) -> None:
    factory = {"_target_": f"stringline.{name}", "_partial_": True, "floor": 0.04}
    model = configuration()
    encoder = model["observation_encoder"]
    assert isinstance(encoder, dict)
    model |= {
        "normalisation": factory,
        "observation_encoder": encoder | {"normalisation": factory},
    }
    policy = build_policy(model, contract, statistics)
    assert isinstance(policy, ChunkPolicy)
    save_policy(tmp_path / "checkpoint", policy, model, {})
    loaded = load_policy(tmp_path / "checkpoint")
    assert isinstance(loaded, DiffusionPolicy)
    assert isinstance(loaded.observation_encoder, ObservationEncoder)
    assert (
        type(loaded.action_range).__name__
        == type(loaded.observation_encoder.joint_range).__name__
        == name
    )
    torch.testing.assert_close(loaded.action_range.low, policy.action_range.low, rtol=0, atol=0)
    assert isinstance(loaded.scheduler, DDIMScheduler)
    assert loaded.scheduler.config["clip_sample_range"] == policy.action_range.reach


def test_a_checkpoint_without_a_choice_uses_its_former_default() -> None:
    policy = load_policy("hand_over_banana")
    assert type(policy.action_range) is MinMaxNormaliser
    np.testing.assert_array_less(policy.statistics["action"].min, policy.action_range.high.numpy())
