"""Planes that do not rotate: contents are compared there independently of positions."""

from collections.abc import Callable

import pytest
import torch

from stringline.encoders.positions.rotary import CayleyString, Rope, RopeMixed, Rotary

SPAN = (0.04, 2.0)
PRESETS: dict[str, Callable[[float], Rotary]] = {
    "rope": lambda still: Rope(2, 16, 3, wavelengths=SPAN, still=still),
    "mixed": lambda still: RopeMixed(2, 16, 3, wavelengths=SPAN, still=still, share_heads=False),
    "cayley": lambda still: CayleyString(2, 16, 3, wavelengths=SPAN, still=still),
}


@pytest.mark.parametrize("make", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize(("still", "count"), [(0.25, 2), (0.5, 4), (0.3, 2)])
def test_the_share_stands_still_and_the_others_cover_the_range(
    make: Callable[[float], Rotary], still: float, count: int
) -> None:
    omega = make(still).frequencies()
    speeds = omega.norm(dim=1)
    assert (speeds[:, -count:] == 0).all()
    assert (speeds[:, :-count] > 0).all()
    lengths = 2 * torch.pi / speeds[:, :-count]
    torch.testing.assert_close(lengths.amin(dim=-1), torch.full((len(omega),), SPAN[0]))
    torch.testing.assert_close(lengths.amax(dim=-1), torch.full((len(omega),), SPAN[1]))


@pytest.mark.parametrize("make", PRESETS.values(), ids=PRESETS)
def test_still_planes_compare_contents_at_any_distance(make: Callable[[float], Rotary]) -> None:
    """Queries and keys in the still planes of the basis have the same logits everywhere."""
    encoding = make(0.25).double()
    generator = torch.Generator().manual_seed(0)
    here = encoding.prepare(torch.randn(1, 5, 3, generator=generator, dtype=torch.float64))
    there = encoding.prepare(9 * torch.randn(1, 5, 3, generator=generator, dtype=torch.float64))
    basis = encoding.basis()
    still = torch.zeros(16, dtype=torch.float64)
    still[[6, 7, 14, 15]] = 1.0  # Planes 6 and 7 are the channels n and n + 8.
    q, k = torch.randn(2, 1, 2, 5, 16, generator=generator, dtype=torch.float64) * still
    if basis is not None:
        q, k = (x @ basis.double().mT for x in (q, k))
    logits = [encoding.rotate(q, places) @ encoding.rotate(k, here).mT for places in (here, there)]
    torch.testing.assert_close(*logits)
    moving = torch.randn(1, 2, 5, 16, generator=generator, dtype=torch.float64)
    changed = [
        encoding.rotate(moving, places) @ encoding.rotate(moving, here).mT
        for places in (here, there)
    ]
    assert (changed[0] - changed[1]).abs().max() > 0.1


def test_still_planes_stay_still_in_training_and_start_at_zero_with_gradients() -> None:
    encoding = RopeMixed(2, 16, 3, wavelengths=SPAN, still=0.5)
    encoding.zero_()
    optimiser = torch.optim.SGD(encoding.parameters(), 0.1)
    x = torch.randn(1, 2, 4, 16, generator=torch.Generator().manual_seed(0))
    places = encoding.prepare(torch.arange(12.0).reshape(1, 4, 3))
    loss = (encoding.rotate(x, places) ** 3).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    omega = encoding.frequencies()
    assert (omega[..., -4:] == 0).all()
    assert (omega[..., :-4] != 0).any()


def test_no_share_is_the_encoding_of_before() -> None:
    plain = RopeMixed(2, 16, 3, wavelengths=SPAN)
    same = RopeMixed(2, 16, 3, wavelengths=SPAN, still=0.0)
    assert plain.state_dict().keys() == same.state_dict().keys()
    torch.testing.assert_close(plain.frequencies(), same.frequencies(), rtol=0, atol=0)


def test_heads_with_own_frequencies_share_a_basis() -> None:
    own = CayleyString(4, 16, 3, wavelengths=SPAN, share_heads=False, share_basis=True)
    basis = own.basis()
    assert basis is not None
    assert (len(own.frequencies()), len(basis)) == (4, 1)


@pytest.mark.parametrize(
    ("still", "message"),
    [
        (1.0, r"still must be a number of at least 0 and below 1 \(got 1.0\)"),
        (-0.1, r"still must be a number of at least 0"),
        (0.8, r"still is 0.8, which leaves 2 of 8 planes; allowed: at least 3 rotating planes"),
    ],
)
def test_shares_without_enough_rotating_planes_are_refused(still: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RopeMixed(2, 16, 3, wavelengths=SPAN, still=still)
