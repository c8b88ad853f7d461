"""Augmentation of keyposes in space: the scene and its targets move together.

What a policy sees and what it predicts are both in the base frame, so a rigid motion of both gives
another valid example, as long as the arm's root moves along. Two further changes are true because
of what is rigidly connected (the "hold" augmentation): a gripper with what it holds may be a little
elsewhere on its way to the same goal, and what it holds may have slipped in the hand; then the
gripper has to end where the object would still arrive, K' = K G^-1 D^-1 G for a slip D of what the
gripper at G holds. Without it, a policy that has only seen perfect grasps reads the answer from
where the expert's gripper is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, SHARE, Range
from stringline.datasets.loading.keyposes import PREFIX
from stringline.datasets.loading.workspace_clouds import PREFIX as CLOUD

PROBABILITY = Range(least=0, most=1)
WAYS = ("approach", "corner", "departure")
_HELD_POINTS = 20
# Two pads let a load turn about the axis along which they close, and hardly otherwise: in ten
# episodes of an expert, pens turned by up to 15 degrees about it and by up to 3 about the others.
_ACROSS = 0.25


@dataclass(frozen=True, kw_only=True)
class SceneAugmentation:
    """Random changes of examples with point clouds; 0 everywhere changes nothing.

    Attributes:
        shift_m: Largest horizontal shift of the scene along x and along y, m.
        yaw_rad: Largest rotation of the scene about the vertical axis, rad.
        mirror: Whether half of the scenes are mirrored in x, with the arms exchanged, and half in
            y. It needs two alike arms, and costs accuracy where starts are like the demonstrations.
        jitter_m: Standard deviation of the noise of points, m.
        dropout: Largest share of the points that are dropped.
        colour: Standard deviation of the factor of brightness of a cloud.
        opening: Probability that the measured opening of a gripper that holds nothing is replaced
            by any other: in recordings it often tells what comes next, since people and experts
            open a hand at a certain time, and a policy that reads the answer from it fails where
            its own hand is open at another time.
        gripper_m: Standard deviation of the noise of measured gripper positions, m.
        hold: Probability that grippers and what they hold move a little, each in its consistent
            way.
        carry: Standard deviations of the motion of a gripper with its load: m, rad.
        slip: Standard deviations of the motion of a load in its gripper: along the pads, m, and
            about the axis along which they close, rad. Across, a load moves by a quarter of that.
        goal: Standard deviations of the motion of a resting gripper whose load is the goal of the
            other arm: m, rad.
    """

    shift_m: float = 0.05
    yaw_rad: float = 0.2
    mirror: bool = False
    jitter_m: float = 0.0015
    dropout: float = 0.3
    colour: float = 0.15
    opening: float = 0.3
    gripper_m: float = 0.002
    hold: float = 1.0
    carry: tuple[float, float] = (0.008, 0.05)
    slip: tuple[float, float] = (0.006, 0.25)
    goal: tuple[float, float] = (0.01, 0.08)

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check(
            shift_m=self.shift_m,
            yaw_rad=self.yaw_rad,
            jitter_m=self.jitter_m,
            colour=self.colour,
            gripper_m=self.gripper_m,
        )
        SHARE.check(dropout=self.dropout)
        PROBABILITY.check(hold=self.hold, opening=self.opening)
        for name in ("carry", "slip", "goal"):
            pair = getattr(self, name)
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise ValueError(f"{name} is {pair!r}; allowed: two numbers, in m and in rad.")
            for number in pair:
                NOT_NEGATIVE.check(**{name: number})

    def __call__(
        self,
        batch: Mapping[str, Tensor],
        arms: tuple[str, ...],
        roots: Tensor,
        openings: Mapping[str, int],
    ) -> dict[str, Tensor]:
        """Returns a changed batch, drawn from torch's global generator.

        Args:
            batch: `T_base_gripper/<arm>`, `keypose/*`, and `cloud/*` or `T_base_camera/<camera>`.
            arms: Names of the arms.
            roots: (A, 4, 4) poses of their roots.
            openings: Places of their openings in `joints/position`; a mirror exchanges them.
        """
        changed = dict(batch)
        if self.opening and f"{PREFIX}holds" in batch:
            self._change_openings(changed, [openings.get(arm) for arm in arms])
        example = batch[f"{PREFIX}pose"]
        grippers = torch.stack([batch[f"T_base_gripper/{arm}"] for arm in arms], dim=1).to(example)
        scene = _Scene(
            changed, grippers, roots.to(example).expand(len(example), -1, -1, -1).clone()
        )
        if self.hold and f"{CLOUD}held" in batch:
            scene.move_loads(self)
        scene.move(self, [openings[arm] for arm in arms if arm in openings])
        if self.gripper_m:
            scene.grippers[..., :3, 3] += self.gripper_m * torch.randn_like(
                scene.grippers[..., :3, 3]
            )
        self._blur(changed)
        for number, arm in enumerate(arms):
            changed[f"T_base_gripper/{arm}"] = scene.grippers[:, number]
            changed[f"T_base_root/{arm}"] = scene.roots[:, number]
        return changed

    def _change_openings(self, batch: dict[str, Tensor], places: Sequence[int | None]) -> None:
        """Replaces openings of some grippers that hold nothing."""
        joints = batch["joints/position"].clone()
        for arm, place in enumerate(places):
            if place is None:
                continue
            chosen = torch.rand(len(joints), device=joints.device) < self.opening
            chosen &= ~batch[f"{PREFIX}holds"][:, arm]
            joints[:, place] = torch.where(
                chosen, torch.rand_like(joints[:, place]), joints[:, place]
            )
        batch["joints/position"] = joints

    def _blur(self, batch: dict[str, Tensor]) -> None:
        """Adds noise to points and colours, and drops points."""
        if f"{CLOUD}points" not in batch:
            return
        points = batch[f"{CLOUD}points"]
        count = batch[f"{CLOUD}count"]
        rows = len(points)
        points = points + self.jitter_m * torch.randn_like(points)
        colours = batch[f"{CLOUD}colours"].to(points.dtype)
        tone = 1 + self.colour * torch.randn(rows, 1, 1, device=points.device)
        tint = 50 * self.colour * torch.randn(rows, 1, 3, device=points.device)
        batch[f"{CLOUD}colours"] = (colours * tone + tint).clamp(0, 255)
        if self.dropout:
            kept = 1 - self.dropout * torch.rand(rows, device=points.device)
            # Points are stored without an order, so the first ones are a random choice; but those
            # of the support are the last, so the order is drawn anew.
            order = torch.rand(points.shape[:2], device=points.device)
            real = torch.arange(points.shape[1], device=points.device) < count[:, None]
            order = order.masked_fill(~real, 2.0).argsort(dim=1)
            wide = order[..., None].expand(-1, -1, 3)
            points = points.gather(1, wide)
            batch[f"{CLOUD}colours"] = batch[f"{CLOUD}colours"].gather(1, wide)
            batch[f"{CLOUD}count"] = (count * kept).long().clamp(min=1)
        batch[f"{CLOUD}points"] = points


class _Scene:
    """A batch in which things move; entries of the batch are replaced, not changed."""

    def __init__(self, batch: dict[str, Tensor], grippers: Tensor, roots: Tensor) -> None:
        self.batch = batch
        self.grippers = grippers.clone()
        self.roots = roots
        for name in ("pose", *WAYS):
            batch[f"{PREFIX}{name}"] = batch[f"{PREFIX}{name}"].clone()

    def poses(self, name: str) -> Tensor:
        """Returns the poses (B, A, 4, 4) of a target, to be changed in place."""
        return self.batch[f"{PREFIX}{name}"]

    def move_loads(self, settings: SceneAugmentation) -> None:
        """Moves grippers with their loads, and loads in their grippers."""
        batch = self.batch
        points = batch[f"{CLOUD}points"].clone()
        bits = batch[f"{CLOUD}held"].long()
        arms = self.grippers.shape[1]
        carried = [(bits >> arm) & 1 > 0 for arm in range(arms)]
        alone = [
            mask & ~torch.stack([carried[o] for o in range(arms) if o != arm]).any(0)
            if arms > 1
            else mask
            for arm, mask in enumerate(carried)
        ]
        acting = batch[f"{PREFIX}acting"]
        opens = acting & (batch[f"{PREFIX}after"] > batch[f"{PREFIX}before"])
        chosen = torch.rand(len(points), device=points.device) < settings.hold
        for arm in range(arms):
            loaded = alone[arm].sum(dim=1) > _HELD_POINTS
            others_open = opens.clone()
            others_open[:, arm] = False
            is_goal = chosen & ~acting[:, arm] & loaded & others_open.any(dim=1)
            works = chosen & acting[:, arm]
            spread = torch.where(
                is_goal[:, None],
                points.new_tensor(settings.goal),
                points.new_tensor(settings.carry),
            )
            before = self.grippers[:, arm].clone()
            carry = _random_motion(spread, before[:, :3, 3], works | is_goal)
            self.grippers[:, arm] = carry @ before
            load = alone[arm] & loaded[:, None]
            points = torch.where(load[..., None], _moved(points, carry), points)
            held = self.grippers[:, arm].clone()
            slips = (works | is_goal) & loaded & (torch.rand_like(spread[:, 0]) < 0.7)
            slip = _random_motion(
                points.new_tensor(settings.slip).expand_as(spread),
                held[:, :3, 3],
                slips,
                pads=held[:, :3, :3],
            )
            points = torch.where(load[..., None], _moved(points, slip), points)
            self._follow(arm, works & slips, is_goal, carry, slip, held)
        batch[f"{CLOUD}points"] = points

    def _follow(
        self, arm: int, slipped: Tensor, is_goal: Tensor, carry: Tensor, slip: Tensor, held: Tensor
    ) -> None:
        """Moves the targets that depend on a load which has moved."""
        # The gripper ends where its load would still arrive.
        inverse = torch.linalg.inv(held)
        follow = inverse @ torch.linalg.inv(slip) @ held
        for name in ("pose", *WAYS):
            poses = self.poses(name)
            own = poses[:, arm]
            own = torch.where(slipped[:, None, None], own @ follow, own)
            own = torch.where(is_goal[:, None, None], carry @ own, own)
            poses[:, arm] = own
            for other in range(poses.shape[1]):
                if other != arm:
                    moved = slip @ carry @ poses[:, other]
                    poses[:, other] = torch.where(is_goal[:, None, None], moved, poses[:, other])

    def move(self, settings: SceneAugmentation, openings: Sequence[int]) -> None:
        """Shifts, turns and mirrors everything."""
        example = self.grippers
        rows = len(example)
        device = example.device
        angle = (2 * torch.rand(rows, device=device) - 1) * settings.yaw_rad
        shift = (2 * torch.rand(rows, 2, device=device) - 1) * settings.shift_m
        motion = torch.eye(4, device=device, dtype=example.dtype).repeat(rows, 1, 1)
        motion[:, 0, 0] = motion[:, 1, 1] = angle.cos()
        motion[:, 1, 0] = angle.sin()
        motion[:, 0, 1] = -angle.sin()
        motion[:, :2, 3] = shift
        flips = torch.zeros(rows, 2, dtype=torch.bool, device=device)
        if settings.mirror:
            flips = torch.rand(rows, 2, device=device) < 0.5
            signs = torch.where(flips, -1.0, 1.0)
            motion[:, :3, :2] = motion[:, :3, :2] * signs[:, None]
        self._apply(motion, flips.sum(dim=1) == 1)
        if settings.mirror:
            self._exchange_arms(flips[:, 0], openings)

    def _apply(self, motion: Tensor, improper: Tensor) -> None:
        """Applies motions (B, 4, 4) to the scene; mirrored poses stay right-handed.

        A mirrored gripper is reflected in its own plane of symmetry, y = 0, as well.
        """
        batch = self.batch
        if f"{CLOUD}points" in batch:
            batch[f"{CLOUD}points"] = _moved(batch[f"{CLOUD}points"], motion)
        for key in [key for key in batch if key.startswith("T_base_camera/")]:
            batch[key] = motion.to(batch[key].dtype) @ batch[key]
        reflect = torch.diag(motion.new_tensor([1.0, -1.0, 1.0, 1.0]))
        own = torch.where(improper[:, None, None], reflect, torch.eye(4).to(reflect))[:, None]
        self.grippers = motion[:, None] @ self.grippers @ own
        self.roots = motion[:, None] @ self.roots @ own
        for name in ("pose", *WAYS):
            batch[f"{PREFIX}{name}"] = motion[:, None] @ self.poses(name) @ own

    def _exchange_arms(self, exchanged: Tensor, openings: Sequence[int]) -> None:
        """Exchanges two arms in some examples (B,) bool; their other joints are not read."""
        joints = self.batch["joints/position"].clone()
        measured = joints[:, openings]
        joints[:, openings] = _flipped(measured, exchanged)
        self.batch["joints/position"] = joints
        self.grippers = _flipped(self.grippers, exchanged)
        self.roots = _flipped(self.roots, exchanged)
        for name in ("pose", *WAYS, "acting", "before", "after"):
            key = f"{PREFIX}{name}"
            self.batch[key] = _flipped(self.batch[key], exchanged)


def _flipped(values: Tensor, rows: Tensor) -> Tensor:
    """Returns values (B, 2, ...) with the second axis reversed in some rows."""
    return torch.where(rows.reshape(-1, *[1] * (values.ndim - 1)), values.flip(1), values)


def _moved(points: Tensor, motion: Tensor) -> Tensor:
    """Returns points (B, P, 3) after motions (B, 4, 4)."""
    return points @ motion[:, :3, :3].transpose(1, 2) + motion[:, None, :3, 3]


def _random_motion(
    spread: Tensor, about: Tensor, chosen: Tensor, pads: Tensor | None = None
) -> Tensor:
    """Returns small random motions (B, 4, 4) about points; the identity where not chosen.

    Args:
        spread: (B, 2) standard deviations, m and rad.
        about: (B, 3) centres of the rotations.
        chosen: (B,) bool.
        pads: (B, 3, 3) rotations of the grippers that hold what moves. Then it moves as their pads
            let it: along x and z, and about y. In other directions the spread is `_ACROSS` of that.
    """
    rows = len(about)
    factor = chosen[:, None].to(about.dtype)
    turn = torch.randn(rows, 3, dtype=about.dtype, device=about.device) * spread[:, 1:] * factor
    shift = torch.randn(rows, 3, dtype=about.dtype, device=about.device) * spread[:, :1] * factor
    if pads is not None:
        turn = (pads @ (turn * turn.new_tensor([_ACROSS, 1, _ACROSS]))[..., None])[..., 0]
        shift = (pads @ (shift * shift.new_tensor([1, _ACROSS, 1]))[..., None])[..., 0]
    zero = torch.zeros_like(turn[:, 0])
    x, y, z = turn.unbind(-1)
    skew = torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), dim=-1).reshape(rows, 3, 3)
    motion = torch.eye(4, dtype=about.dtype, device=about.device).repeat(rows, 1, 1)
    motion[:, :3, :3] = torch.linalg.matrix_exp(skew)
    motion[:, :3, 3] = about + shift - (motion[:, :3, :3] @ about[..., None])[..., 0]
    return motion
