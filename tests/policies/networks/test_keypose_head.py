"""Votes, modes and denoising of keyposes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from stringline.encoders.positions.rotary import CayleyString
from stringline.policies.networks.inputs import TokenPlaces
from stringline.policies.networks.keypose_head import (
    FLAGS,
    NUMBERS,
    SCALE_M,
    VOTED,
    KeyposeDenoiser,
    KeyposeNoise,
    KeyposePointer,
    Votes,
    joined_votes,
    modes_of,
    rotation_of,
)

B, A, N, DIM = 2, 2, 12, 32


def conditioning(*, shift: float = 0.0) -> SimpleNamespace:
    generator = torch.Generator().manual_seed(0)
    place = torch.randn(B, N + A, 3, generator=generator).double() + shift
    present = torch.ones(B, N + A, dtype=torch.bool)
    present[:, 9:N] = False
    places = TokenPlaces(
        coordinates=place,
        has_position=present,
        grippers=place[:, -A:],
        directions=torch.eye(3).double().repeat(B, A, 1, 1),
    )
    tokens = torch.randn(B, N + A, DIM, generator=generator).double()
    return SimpleNamespace(tokens=tokens, places=places, arms=A)


def votes_at(position: Tensor, weight: Tensor) -> Votes:
    """Returns votes (1, 1, N) for positions (N, 3) with weights (N,)."""
    numbers = torch.zeros(1, 1, len(position), VOTED)
    numbers[0, 0, :, :3] = position
    return Votes(
        weight.log()[None, None],
        numbers,
        torch.zeros(1, 1, FLAGS),
        position[None],
        torch.ones(1, len(position), dtype=torch.bool),
        torch.zeros(1, 1, DIM),
    )


def test_rotations_are_right_handed_and_keep_true_ones() -> None:
    six = torch.randn(50, 6, dtype=torch.float64)
    turn = rotation_of(six)
    identity = torch.eye(3).double().expand(50, 3, 3)
    torch.testing.assert_close(turn @ turn.transpose(1, 2), identity)
    torch.testing.assert_close(torch.linalg.det(turn), torch.ones(50).double())
    torch.testing.assert_close(rotation_of(turn[..., :2].transpose(1, 2).flatten(1)), turn)


def test_votes_move_with_the_places() -> None:
    torch.manual_seed(0)
    pointer = KeyposePointer(DIM).double()
    first, second = (pointer(conditioning(shift=shift)) for shift in (0.0, 0.5))
    torch.testing.assert_close(second.numbers[..., :3], first.numbers[..., :3] + 0.5)
    torch.testing.assert_close(second.numbers[..., 3:], first.numbers[..., 3:])
    torch.testing.assert_close(second.logit, first.logit)


def test_absent_tokens_have_no_weight() -> None:
    torch.manual_seed(0)
    votes = KeyposePointer(DIM).double()(conditioning())
    assert votes.logit.softmax(-1)[..., 9:].max() == 0


def test_modes_are_the_clusters_with_the_most_weight() -> None:
    """Two clusters, of which the second has the largest single vote."""
    near = torch.tensor([[0.0, 0.0, 0.0], [0.005, 0.0, 0.0], [0.0, 0.005, 0.0]])
    position = torch.cat((near, torch.tensor([[0.3, 0.0, 0.0]]), torch.tensor([[0.6, 0, 0]])))
    weight = torch.tensor([0.25, 0.2, 0.15, 0.3, 0.1])
    numbers, shares = modes_of(votes_at(position, weight), 3, 0.03)
    torch.testing.assert_close(shares[0, 0], torch.tensor([0.6, 0.3, 0.1]), atol=1e-5, rtol=0)
    mean = (near * weight[:3, None]).sum(0) / 0.6
    torch.testing.assert_close(numbers[0, 0, 0, :3], mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(numbers[0, 0, 1, :3], position[3], atol=1e-5, rtol=0)


def test_shares_of_modes_fall() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        position = 0.06 * torch.randn(40, 3, generator=generator)
        weight = torch.rand(40, generator=generator).softmax(0)
        _, shares = modes_of(votes_at(position, weight), 4, 0.03)
        assert (shares.diff(dim=-1) < 1e-3).all()
        assert shares.sum() <= 1 + 1e-5


def test_more_modes_than_votes_are_finite() -> None:
    numbers, shares = modes_of(votes_at(torch.zeros(2, 3), torch.tensor([0.5, 0.5])), 3, 0.03)
    assert numbers.isfinite().all()
    torch.testing.assert_close(shares[0, 0], torch.tensor([1.0, 0.0, 0.0]))


def test_joined_draws_weigh_alike_and_belong_to_their_row() -> None:
    torch.manual_seed(0)
    pointer = KeyposePointer(DIM).double()
    votes = pointer(conditioning())  # Two rows: two samples of one observation.
    joined = joined_votes(votes, 2)
    assert joined.logit.shape == (1, A, 2 * N)
    weight = joined.logit.softmax(-1)
    torch.testing.assert_close(weight[..., :N].sum(-1), torch.full((1, A), 0.5), check_dtype=False)
    torch.testing.assert_close(joined.numbers[0, :, N:], votes.numbers[1], check_dtype=False)
    torch.testing.assert_close(joined.place[0, N:], votes.place[1])
    torch.testing.assert_close(weight[0, :, :N] * 2, votes.logit.softmax(-1)[0], check_dtype=False)


def test_noise_is_none_at_level_0_and_of_its_size_at_1() -> None:
    numbers = torch.randn(1000, NUMBERS)
    noise = KeyposeNoise(position_m=0.03, rotation=0.25)
    clean = noise.add(numbers, torch.zeros(1000), torch.randn(1000, 9))
    assert torch.equal(clean, numbers[:, :9])
    change = noise.add(numbers, torch.ones(1000), torch.randn(1000, 9)) - numbers[:, :9]
    assert change[:, :3].std() == pytest.approx(0.03, rel=0.1)
    assert change[:, 3:].std() == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("name", ["position_m", "rotation"])
def test_negative_noise_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        KeyposeNoise(**{name: -0.1})


def denoiser(dim: int = DIM) -> KeyposeDenoiser:
    encoding = CayleyString(2, dim // 2, 3, wavelengths=(0.2, 2.0))
    return KeyposeDenoiser(dim, encoding, arms=A).double()


def denoised(*, shift: float = 0.0, far: float = 0.0, dim: int = DIM) -> Tensor:
    torch.manual_seed(0)
    network = denoiser(dim)
    scene: Any = conditioning(shift=shift)
    scene.tokens = (
        scene.tokens + far * torch.arange(N + A).ge(9)[:, None] * (torch.arange(N + A) < N)[:, None]
    )
    noisy = torch.randn(B, A, 3, 9, generator=torch.Generator().manual_seed(1)).double()
    noisy[..., :3] = 0.1 * noisy[..., :3] + shift
    level = torch.full((B, A, 3), 0.5).double()
    query = scene.tokens[:, -A:]
    present = scene.places.has_position[:, :-A]
    found = network(noisy, level, query, network.precompute(scene), present)
    assert isinstance(found, Tensor)
    return found


def test_denoising_knows_differences_of_places_only() -> None:
    first, second = denoised(), denoised(shift=0.7)
    torch.testing.assert_close(second[..., :3], first[..., :3] + 0.7, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(second[..., 3:], first[..., 3:], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("frame", range(1, 1 + A))
def test_a_keypose_in_the_frame_of_a_gripper_moves_with_it(frame: int) -> None:
    """Frame 1 is the own gripper, 2 that of the other arm; nothing else has a weight here."""
    torch.manual_seed(0)
    network = denoiser()
    torch.nn.init.zeros_(network.read.weight)
    with torch.no_grad():
        network.read.bias.normal_().unflatten(0, (1 + A, NUMBERS + 1))[frame, NUMBERS] = 60.0
    motion = torch.eye(4).double()
    motion[:3, :3] = rotation_of(torch.randn(6).double())
    motion[:3, 3] = torch.randn(3).double()
    scene: Any = conditioning()
    moved: Any = conditioning()
    moved.places.grippers[:] = scene.places.grippers @ motion[:3, :3].T + motion[:3, 3]
    moved.places.directions[:] = motion[:3, :3] @ scene.places.directions
    noisy = torch.randn(B, A, 3, 9).double()
    level = torch.rand(B, A, 3).double()
    first, second = (
        network(
            noisy,
            level,
            each.tokens[:, -A:],
            network.precompute(each),
            each.places.has_position[:, :-A],
        )
        for each in (scene, moved)
    )
    origin = first[..., :3] @ motion[:3, :3].T + motion[:3, 3]
    torch.testing.assert_close(second[..., :3], origin, atol=1e-5, rtol=1e-5)
    vectors = first[..., 3:].unflatten(-1, (-1, 3)) @ motion[:3, :3].T
    torch.testing.assert_close(second[..., 3:], vectors.flatten(-2), atol=1e-5, rtol=1e-5)
    own = [0, 1] if frame == 1 else [1, 0]
    reach = (first[..., :3] - scene.places.grippers[:, own, None]).norm(dim=-1)
    assert (reach - reach[:1, :1, :1]).abs().max() < 1e-5


def test_absent_tokens_do_not_denoise() -> None:
    torch.testing.assert_close(denoised(far=5.0), denoised())
    assert SCALE_M == 0.1
