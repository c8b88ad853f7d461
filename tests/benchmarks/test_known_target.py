"""The networks of the known target are optimal."""

from importlib import import_module

import torch

known_target = import_module("known_target")


def test_the_best_prediction_is_the_posterior_mean() -> None:
    """Against the weighted mean of many draws of the target with the same noise."""
    target = known_target.TwoArcs()
    generator = torch.Generator().manual_seed(0)
    chunks = target.draw(200_000, generator).flatten(1)
    noisy = 0.8 * chunks[:3] + 0.6 * torch.randn(3, chunks.shape[1], generator=generator)
    noisy = noisy @ target.plane @ target.plane.T  # Within the plane few draws suffice.
    signal = torch.full((3, 1), 0.8)
    noise = torch.full((3, 1), 0.6)
    found = target.clean(
        noisy.reshape(3, 1, known_target.CHUNK, known_target.ACTIONS), signal, noise
    ).flatten(1)
    distance = (
        ((noisy @ target.plane)[:, None] - 0.8 * (chunks @ target.plane)[None]).square().sum(dim=-1)
    )
    expected = (-distance / (2 * 0.6**2)).softmax(dim=1) @ chunks @ target.plane
    torch.testing.assert_close(found @ target.plane, expected, rtol=0, atol=0.02)
