"""What rigid connection demands of augmented examples."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.algorithms.keypose_augmentation import SceneAugmentation

ARMS = ALOHA.arms
ROOTS = torch.stack([torch.tensor(chain.T_base_root) for chain in ALOHA.chains]).double()
STILL = SceneAugmentation(
    shift_m=0,
    yaw_rad=0,
    jitter_m=0,
    dropout=0,
    colour=0,
    gripper_m=0,
    hold=0,
    carry=(0, 0),
    slip=(0, 0),
    goal=(0, 0),
)
POSES = ("pose", "approach", "corner", "departure")
B, P, HELD = 6, 200, 60


def random_poses(*shape: int) -> Tensor:
    poses = torch.eye(4, dtype=torch.float64).repeat(*shape, 1, 1)
    poses[..., :3, :3] = torch.linalg.qr(torch.randn(*shape, 3, 3, dtype=torch.float64))[0]
    poses[..., :3, 0] *= torch.linalg.det(poses[..., :3, :3])[..., None]
    poses[..., :3, 3] = 0.3 * torch.randn(*shape, 3, dtype=torch.float64)
    return poses


def example(acting: tuple[bool, bool] = (True, False), *, opens: bool = True) -> dict[str, Tensor]:
    """Returns examples in which the left gripper holds the first points."""
    torch.manual_seed(0)
    points = torch.randn(B, P, 3, dtype=torch.float64)
    held = torch.zeros(B, P, dtype=torch.uint8)
    held[:, :HELD] = 1
    joints = torch.rand(B, len(ALOHA.joints), dtype=torch.float64)
    batch = {f"T_base_gripper/{arm}": random_poses(B) for arm in ARMS}
    batch |= {f"keypose/{name}": random_poses(B, 2) for name in POSES}
    batch |= {
        "joints/position": joints,
        "keypose/acting": torch.tensor(acting).repeat(B, 1),
        "keypose/before": torch.full((B, 2), 0.1 if opens else 0.8, dtype=torch.float64),
        "keypose/after": torch.full((B, 2), 0.8 if opens else 0.1, dtype=torch.float64),
        "keypose/number": torch.zeros(B, dtype=torch.int64),
        "cloud/points": points,
        "cloud/colours": torch.randint(0, 255, (B, P, 3), dtype=torch.uint8),
        "cloud/held": held,
        "cloud/count": torch.full((B,), P),
        "cloud/support": torch.zeros(B, dtype=torch.float64),
    }
    return batch


def augmented(settings: SceneAugmentation, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return settings(batch, ARMS, ROOTS, ALOHA.grippers)


def moved(points: Tensor, motion: Tensor) -> Tensor:
    return points @ motion[:, :3, :3].transpose(1, 2) + motion[:, None, :3, 3]


def test_zero_everywhere_changes_nothing() -> None:
    batch = example()
    found = augmented(STILL, batch)
    for key, value in batch.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=1e-12, check_dtype=False)


def test_the_batch_that_is_given_does_not_change() -> None:
    batch = example()
    copy = {key: value.clone() for key, value in batch.items()}
    augmented(SceneAugmentation(mirror=True), batch)
    for key, value in copy.items():
        assert torch.equal(batch[key], value), key


@pytest.mark.parametrize("mirror", [False, True])
def test_scene_grippers_roots_and_targets_move_as_one(mirror: bool) -> None:
    batch = example()
    found = augmented(replace(STILL, shift_m=0.1, yaw_rad=3.0, mirror=mirror), batch)

    def places(of: dict[str, Tensor]) -> Tensor:
        grippers = torch.stack([of[f"T_base_gripper/{arm}"][:, :3, 3] for arm in ARMS], 1)
        roots = (
            torch.stack([of[f"T_base_root/{arm}"][:, :3, 3] for arm in ARMS], 1)
            if f"T_base_root/{ARMS[0]}" in of
            else ROOTS[None, :, :3, 3].expand(B, -1, -1)
        )
        targets = [of[f"keypose/{name}"][..., :3, 3] for name in POSES]
        return torch.cat((of["cloud/points"], grippers, roots, *targets), dim=1)

    distances = torch.cdist(places(found), places(found))
    # A mirror exchanges the arms in some examples: then their entries change places.
    number = P + torch.arange(0, 12, 2)
    exchange = torch.arange(P + 12)
    exchange[number] = number + 1
    exchange[number + 1] = number
    plain = places(batch)
    same = torch.cdist(plain, plain)
    other = torch.cdist(plain[:, exchange], plain[:, exchange])
    errors = [(distances - each).abs().amax((1, 2)) for each in (same, other)]
    assert torch.minimum(*errors).max() < 1e-6
    assert (errors[0] < 1e-6).all() or mirror
    heights = [each["cloud/points"][..., 2] for each in (batch, found)]
    torch.testing.assert_close(*heights)
    for key in [*(f"keypose/{name}" for name in POSES), *(f"T_base_gripper/{arm}" for arm in ARMS)]:
        turns = found[key][..., :3, :3]
        torch.testing.assert_close(torch.linalg.det(turns), torch.ones(turns.shape[:-2]).double())


def test_a_mirror_exchanges_all_that_belongs_to_an_arm() -> None:
    """The measured openings too: they tell which arm holds something."""
    batch = example()
    columns = [ALOHA.grippers[arm] for arm in ARMS]
    found = augmented(replace(STILL, mirror=True), batch)
    mirrored = found["keypose/acting"][:, 1]
    assert mirrored.any()
    assert not mirrored.all()
    before = batch["joints/position"][:, columns]
    after = found["joints/position"][:, columns]
    torch.testing.assert_close(after[mirrored], before[mirrored].flip(1))
    torch.testing.assert_close(after[~mirrored], before[~mirrored])


def test_a_slip_moves_the_release_so_that_the_load_still_arrives() -> None:
    """With the load at L = D L0 and the gripper at G, K' G^-1 L equals K G^-1 L0."""
    batch = example()
    found = augmented(replace(STILL, hold=1, slip=(0.01, 0.2)), batch)
    gripper = batch[f"T_base_gripper/{ARMS[0]}"]
    torch.testing.assert_close(found[f"T_base_gripper/{ARMS[0]}"], gripper)
    inverse = torch.linalg.inv(gripper)
    for name in POSES:
        before = batch[f"keypose/{name}"][:, 0] @ inverse
        after = found[f"keypose/{name}"][:, 0] @ inverse
        arrived = moved(found["cloud/points"][:, :HELD], after)
        torch.testing.assert_close(arrived, moved(batch["cloud/points"][:, :HELD], before))
        torch.testing.assert_close(found[f"keypose/{name}"][:, 1], batch[f"keypose/{name}"][:, 1])
    away = (found["cloud/points"] - batch["cloud/points"]).abs().amax(2)
    assert away[:, HELD:].max() == 0
    assert (away[:, :HELD].amax(1) > 1e-4).any()


def test_a_load_slips_along_the_pads_and_turns_about_their_axis() -> None:
    """The pads close along y of the gripper: a load turns about y and slides in x and z."""
    one = example()
    batch = {key: value[:1].repeat(400, *[1] * (value.ndim - 1)) for key, value in one.items()}
    found = augmented(replace(STILL, hold=1, slip=(0.01, 0.2)), batch)
    inverse = torch.linalg.inv(batch[f"T_base_gripper/{ARMS[0]}"])
    before, after = (moved(of["cloud/points"][:, :HELD], inverse) for of in (batch, found))
    middle = before.mean(1, keepdim=True), after.mean(1, keepdim=True)
    u, _, v = torch.linalg.svd((before - middle[0]).transpose(1, 2) @ (after - middle[1]))
    turn = v.transpose(1, 2) @ u.transpose(1, 2)
    torch.testing.assert_close(torch.linalg.det(turn), torch.ones(400).double())
    shift = middle[1][:, 0] - (turn @ middle[0].transpose(1, 2))[..., 0]
    odd = turn - turn.transpose(1, 2)
    about = torch.stack([odd[:, 2, 1], odd[:, 0, 2], odd[:, 1, 0]])
    slipped = about.abs().amax(0) > 0
    turns, shifts = 0.5 * about[:, slipped].std(1), shift[slipped].std(0)
    assert 0.15 < turns[1] < 0.25
    assert turns[[0, 2]].max() < 0.4 * turns[1]
    assert shifts[1] < 0.4 * shifts[[0, 2]].min()


def test_a_gripper_moves_with_its_load_and_its_targets_stay() -> None:
    batch = example()
    found = augmented(replace(STILL, hold=1, carry=(0.01, 0.1)), batch)
    for name in POSES:
        torch.testing.assert_close(found[f"keypose/{name}"], batch[f"keypose/{name}"])

    def local(of: dict[str, Tensor]) -> Tensor:
        return moved(
            of["cloud/points"][:, :HELD], torch.linalg.inv(of[f"T_base_gripper/{ARMS[0]}"])
        )

    torch.testing.assert_close(local(found), local(batch))
    torch.testing.assert_close(found["cloud/points"][:, HELD:], batch["cloud/points"][:, HELD:])
    right = f"T_base_gripper/{ARMS[1]}"
    torch.testing.assert_close(found[right], batch[right])
    assert (found["cloud/points"] - batch["cloud/points"])[:, :HELD].abs().max() > 1e-3


def test_the_goal_of_a_release_moves_with_the_load_of_the_resting_arm() -> None:
    """The left gripper holds the socket, the right one puts something into it."""
    batch = example((False, True))
    found = augmented(replace(STILL, hold=1, goal=(0.01, 0.1), slip=(0.005, 0.1)), batch)

    def beside(of: dict[str, Tensor], name: str) -> Tensor:
        pose = torch.linalg.inv(of[f"keypose/{name}"][:, 1])
        return moved(of["cloud/points"][:, :HELD], pose)

    for name in POSES:
        torch.testing.assert_close(beside(found, name), beside(batch, name))
    assert (found["cloud/points"] - batch["cloud/points"])[:, :HELD].abs().max() > 1e-3


def test_points_that_are_dropped_are_ordinary_ones() -> None:
    """Also where fewer points exist than places; colours stay with their points."""
    batch = example()
    batch["cloud/count"] = torch.tensor([200, 150, 100, 50, 20, 1])
    batch["cloud/colours"] = (batch["cloud/points"] * 10 + 100).clamp(0, 255)
    found = augmented(replace(STILL, dropout=0.5), batch)
    count = found["cloud/count"]
    assert (count >= 1).all()
    assert (count <= batch["cloud/count"]).all()
    assert (count >= 0.5 * batch["cloud/count"] - 1).all()
    for row in range(B):
        kept = found["cloud/points"][row, : count[row]]
        known = batch["cloud/points"][row, : batch["cloud/count"][row]]
        assert (torch.cdist(kept, known).min(1).values < 1e-6).all()
        colours = found["cloud/colours"][row, : count[row]]
        torch.testing.assert_close(colours, (kept * 10 + 100).clamp(0, 255))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shift_m", -0.1),
        ("yaw_rad", float("nan")),
        ("hold", 1.5),
        ("dropout", 1.0),
        ("slip", (-0.1, 0.0)),
        ("carry", (0.1,)),
        ("carry", (0.1, 0.1, 0.1)),
        ("goal", 0.1),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        SceneAugmentation(**{name: value})  # type: ignore[arg-type]
