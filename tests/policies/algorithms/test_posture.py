"""The linear part of chunks and their smooth remainder: fit, anchor, basis and round trips."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stringline import (
    ActPolicy,
    CayleyString,
    ChunkPolicy,
    ConditioningTokens,
    Contract,
    EpisodeStore,
    GripperPoses,
    MetricPlaces,
    MinMaxNormaliser,
    ObservationEncoder,
    Posture,
    RelativeJoints,
    Windows,
    load_policy,
)
from stringline.datasets.contract.contract import ActionDimension, Array
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.policies.action_spaces.space import ActionSpace, ContractActions
from stringline.policies.algorithms.act import ActSettings
from stringline.policies.algorithms.chunk_policy import fit_posture
from stringline.policies.algorithms.posture import ChunkRemainder, FittedWindows, polynomials
from stringline.policies.checkpoints.load import add_action_statistics, build_policy, save_policy
from stringline.policies.chunks.chunk import ActionPrefix
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.interfaces import state_width
from stringline.policies.observation.normaliser import JointState
from stringline.policies.observation.observation_settings import ObservationSettings

Configuration = Callable[..., dict[str, object]]
Observe = Callable[[int], dict[str, Array]]
CHUNK = 12
POSTURE = "policy.posture={_target_: stringline.Posture, linear: true, anchored: null, %s}"
SMOOTH = POSTURE % "coefficients: 4"
KINDS = ("diffusion", "flow", "energy")
GRIPPERS = [6, 13]
ARMS = [place for place in range(14) if place not in GRIPPERS]


def states(count: int, contract: Contract, seed: int = 0) -> dict[str, Tensor]:
    """Draws joints and velocities in float64."""
    generator = torch.Generator().manual_seed(seed)
    size = (count, len(contract.joints))
    return {
        "joints/position": 0.3 * torch.randn(size, generator=generator, dtype=torch.float64),
        "joints/velocity": torch.randn(size, generator=generator, dtype=torch.float64),
    }


def statistics_with(contract: Contract, chunk: Tensor, seen: dict[str, Tensor]) -> Statistics:
    rows = {"action": chunk.flatten(0, 1), **seen}
    return Statistics(
        {key: statistics_of(partial(iter, [value.numpy()])) for key, value in rows.items()}
    )


def remainder_of(
    contract: Contract,
    seen: dict[str, Tensor],
    actions: Tensor,
    *,
    space: ActionSpace | None = None,
    inside: Tensor | None = None,
    **settings: Any,
) -> tuple[ChunkRemainder, Tensor]:
    """Returns a fitted remainder in float64, and the normalised actions (n, T, D)."""
    space = ContractActions(contract=contract) if space is None else space
    numbers = space.encode(actions, seen)
    statistics = statistics_with(contract, actions, seen)
    of_space = statistics_of(partial(iter, [numbers.flatten(0, 1).numpy()]))
    action_range = MinMaxNormaliser(of_space).double()
    made = ChunkRemainder(
        Posture(**settings),
        space=space,
        contract=contract,
        statistics=statistics,
        action_range=action_range,
        chunk=actions.shape[1],
    ).double()
    known = torch.ones(actions.shape[:2], dtype=torch.bool) if inside is None else inside
    made.fit(lambda: iter([FittedWindows(observation=seen, actions=numbers, inside=known)]))
    return made, action_range.normalise(numbers)


def linear_chunks(seen: dict[str, Tensor], seed: int = 1) -> Tensor:
    """Returns chunks that are a linear map of joints and velocities, (n, T, 14)."""
    generator = torch.Generator().manual_seed(seed)
    both = torch.cat((seen["joints/position"], seen["joints/velocity"]), dim=-1)
    weight = 0.05 * torch.randn(CHUNK, 28, 14, generator=generator, dtype=torch.float64)
    time = torch.linspace(0, 1, CHUNK, dtype=torch.float64)[:, None, None]
    return seen["joints/position"][:, None] + torch.einsum("bs,tsd->btd", both, weight * time)


@pytest.mark.parametrize("space", [ContractActions, RelativeJoints])
def test_of_linear_data_nothing_remains(
    contract: Contract, space: Callable[..., ActionSpace]
) -> None:
    """Also for states that the fit has not seen."""
    seen, fresh = states(400, contract), states(50, contract, seed=5)
    made, normal = remainder_of(
        contract, seen, linear_chunks(seen), space=space(contract=contract), ridge=1e-9
    )
    assert (made.base(seen, normal) - normal).abs().max() < 1e-6
    assert made.remainder(normal, seen).abs().max() < 1e-4
    other = made._range[0].normalise(made._space[0].encode(linear_chunks(fresh), fresh))
    assert (made.base(fresh, other) - other).abs().max() < 1e-6


def test_actions_beyond_the_end_have_no_effect_on_the_fit(contract: Contract) -> None:
    seen = states(300, contract)
    actions = linear_chunks(seen)
    inside = torch.arange(CHUNK) < torch.randint(1, CHUNK + 1, (300, 1))
    wrong = torch.where(inside[..., None], actions, 0.3)
    made, normal = remainder_of(contract, seen, wrong, inside=inside, ridge=1e-9)
    assert (made.base(seen, normal) - normal)[inside].abs().max() < 1e-6


def test_the_fit_is_the_least_squares_of_each_action(contract: Contract) -> None:
    """Against numpy, on noisy data; no other map of the state has a smaller squared error."""
    seen = states(200, contract)
    actions = linear_chunks(seen) + 0.05 * torch.randn(200, CHUNK, 14, dtype=torch.float64)
    made, normal = remainder_of(contract, seen, actions, ridge=0.0)
    both = torch.cat((torch.ones(200, 1), *(seen[key] for key in seen)), dim=-1).numpy()
    for step in (0, CHUNK - 1):
        target = normal[:, step].numpy()
        expected = both @ np.linalg.lstsq(both, target, rcond=None)[0]
        np.testing.assert_allclose(made.base(seen, normal)[:, step], expected, atol=1e-6)
    rest = made.remainder(normal, seen)
    assert (rest.square().mean(dim=0).sqrt() - 1).abs().max() < 0.2
    assert (rest.square().mean(dim=(0, 1)).sqrt() - 1).abs().max() < 0.05
    assert (rest.abs().amax(dim=(0, 1)) <= made.reach * (1 + 1e-5)).all()


def test_the_scale_rises_with_what_the_linear_part_misses(contract: Contract) -> None:
    """Actions that no window contains have the scale of the last one before."""
    seen = states(400, contract)
    time = torch.linspace(0.05, 1, CHUNK, dtype=torch.float64)[:, None]
    noise = 0.1 * time * torch.randn(400, CHUNK, 14, dtype=torch.float64)
    inside = (torch.arange(CHUNK) < CHUNK - 2).expand(400, -1)
    made, normal = remainder_of(contract, seen, linear_chunks(seen) + noise, inside=inside)
    assert (made.scale[: CHUNK - 2].diff(dim=0) > 0).all()
    assert (made.scale[-1] / made.scale[CHUNK - 3] - 1).abs().max() < 0.5
    spread = made.remainder(normal, seen).square().mean(dim=0).sqrt()[: CHUNK - 2]
    assert ((spread > 0.6) & (spread < 1.6)).all()


@pytest.mark.parametrize("linear", [True, False])
def test_remainder_and_restore_are_inverse(contract: Contract, linear: bool) -> None:
    seen = states(40, contract)
    actions = linear_chunks(seen) + 0.1 * torch.randn(40, CHUNK, 14, dtype=torch.float64)
    made, normal = remainder_of(contract, seen, actions, linear=linear)
    back = made.restore(made.remainder(normal, seen), seen)
    torch.testing.assert_close(back, normal, rtol=0, atol=1e-6)
    far = made.restore(torch.full_like(normal, 1e3), seen)
    assert far.abs().max() <= 1, "no action leaves the range of the data"


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("count", [1, 4, 8])
def test_the_basis_reproduces_polynomials_exactly(count: int, *, anchored: bool) -> None:
    basis = polynomials(48, count, anchored=anchored)
    assert basis.shape == (48, count)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(count, dtype=torch.float64))
    time = torch.linspace(0, 1, 48, dtype=torch.float64)
    for degree in range(anchored, count + anchored):
        curve = time**degree
        torch.testing.assert_close(basis @ (basis.mT @ curve), curve, rtol=0, atol=1e-9)
    beyond = time ** (count + anchored)
    assert (basis @ (basis.mT @ beyond) - beyond).abs().max() > 1e-12
    if anchored:
        assert basis[0].abs().max() < 1e-12


@pytest.mark.parametrize(("chunk", "anchored"), [(1, True), (1, False), (3, True), (3, False)])
def test_short_chunks_have_as_many_coefficients_as_actions(chunk: int, *, anchored: bool) -> None:
    assert polynomials(chunk, 8, anchored=anchored).shape == (chunk, chunk - anchored)


def test_smooth_chunks_keep_grippers(contract: Contract) -> None:
    seen = states(20, contract)
    made, _ = remainder_of(contract, seen, linear_chunks(seen), coefficients=4)
    rows = torch.randn(3, 2, CHUNK, 14, dtype=torch.float64)
    smooth = made.smooth(rows)
    assert torch.equal(smooth[..., GRIPPERS], rows[..., GRIPPERS])
    torch.testing.assert_close(made.smooth(smooth), smooth, rtol=0, atol=1e-6)
    assert smooth[..., 0, ARMS].abs().max() < 1e-6, "anchored"
    noise = made.noise(torch.randn(4000, 1, CHUNK, 14, dtype=torch.float64))
    assert noise.square().mean(dim=(0, 1, 2)).sub(1).abs().max() < 0.06
    torch.testing.assert_close(made.smooth(noise), noise, rtol=0, atol=1e-6)


def test_free_chunks_without_an_anchor_are_unchanged(contract: Contract) -> None:
    seen = states(20, contract)
    made, _ = remainder_of(contract, seen, linear_chunks(seen), coefficients=None, anchored=False)
    rows = torch.randn(3, 2, CHUNK, 14, dtype=torch.float64)
    assert torch.equal(made.smooth(rows), rows)
    assert torch.equal(made.noise(rows), rows)
    anchored, _ = remainder_of(contract, seen, linear_chunks(seen), coefficients=None)
    smooth = anchored.smooth(rows)
    assert smooth[..., 0, ARMS].abs().max() < 1e-6
    torch.testing.assert_close(smooth[..., 1:, :], rows[..., 1:, :], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("linear", ["true", "false"])
def test_chunks_begin_at_the_measured_joints(
    kind: str, linear: str, make_policy: Callable[..., ChunkPolicy], make_batch: Any
) -> None:
    """An untrained network would otherwise begin anywhere."""
    policy = make_policy(f"+policy={kind}", "policy.chunk=16", SMOOTH.replace("true", linear))
    batch = make_batch(3)
    chunk = policy.predict(batch, torch.Generator().manual_seed(0))
    measured = batch["joints/position"].clamp(policy.action_range.low, policy.action_range.high)
    torch.testing.assert_close(chunk[:, 0, ARMS], measured[:, ARMS], rtol=0, atol=1e-4)
    free = make_policy(f"+policy={kind}", "policy.chunk=16")
    other = free.predict(batch, torch.Generator().manual_seed(0))
    assert (other[:, 0, ARMS] - measured[:, ARMS]).abs().max() > 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_is_kept(
    kind: str, make_policy: Callable[..., ChunkPolicy], observe: Observe
) -> None:
    policy = make_policy(f"+policy={kind}", "policy.chunk=16", SMOOTH)
    seen = observe(0)
    plain = policy.session(0).plan(seen)
    action = np.asarray(0.8 * plain.action, np.float32)
    weight = np.where(np.arange(16) < 5, 1.0, 0.0)
    prefix = ActionPrefix(time=plain.time, action=action, weight=weight)
    chunk = policy.session(0).plan(seen, prefix).action
    np.testing.assert_array_equal(chunk[:5], action[:5])
    assert np.abs(chunk[5:] - plain.action[5:]).max() > 1e-4


class Still(nn.Module):
    """A network whose clean chunk is always zero, whatever its input is."""

    def __init__(self, *, velocity: bool) -> None:
        super().__init__()
        self.velocity = velocity

    def precompute(self, conditioning: Tensor, state: Tensor | None = None) -> list[Tensor]:
        return []

    def forward(
        self, noisy: Tensor, level: Tensor, precomputed: Any, present: Tensor | None = None
    ) -> Tensor:
        return -noisy / level[..., None, None] if self.velocity else torch.zeros_like(noisy)


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_the_free_actions_go_on_from_a_prefix(
    kind: str, make_policy: Callable[..., ChunkPolicy]
) -> None:
    """Even if the network ignores it: chunks bend, and return to the network's afterwards."""
    policy = make_policy(f"+policy={kind}", "policy.chunk=48", POSTURE % "coefficients: 8")
    policy.denoiser = Still(velocity=kind == "flow")
    rise = torch.linspace(0, 0.5, 48)[:, None].expand(1, 48, 14)
    weight = (torch.arange(48) < 16).float()
    conditioning = ConditioningTokens(torch.zeros(1, 1, 32), state=torch.zeros(1, 15))
    with torch.inference_mode():
        plan = policy.generate(
            conditioning, torch.Generator().manual_seed(0), NormalisedPrefix(rise, weight)
        )[0]
    assert torch.equal(plan[:16], rise[0, :16])
    last = float(rise[0, 15, 0])
    assert (plan[16] - plan[15])[ARMS].abs().max() < 0.4 * last
    assert (plan[16] - plan[15])[GRIPPERS].abs().min() > 0.9 * last, "grippers may jump"
    assert plan[:, ARMS].abs().max() < 3 * last


def test_following_moves_the_least(contract: Contract) -> None:
    seen = states(20, contract)
    made, _ = remainder_of(contract, seen, linear_chunks(seen), coefficients=4)
    chunks = made.smooth(torch.randn(2, 1, CHUNK, 14, dtype=torch.float64))
    none = NormalisedPrefix(torch.zeros(2, CHUNK, 14), torch.zeros(CHUNK))
    torch.testing.assert_close(made.follow(chunks, none), chunks)
    same = NormalisedPrefix(chunks[:, 0], torch.ones(CHUNK))
    torch.testing.assert_close(made.follow(chunks, same), chunks)
    weight = (torch.arange(CHUNK) < 6).double()
    goal = made.smooth(torch.randn(2, 1, CHUNK, 14, dtype=torch.float64))
    bent = made.follow(chunks, NormalisedPrefix(goal[:, 0], weight))
    off, before = ((each - goal)[..., :6, ARMS].abs().mean() for each in (bent, chunks))
    assert off < 0.2 * before
    torch.testing.assert_close(made.smooth(bent), bent, rtol=0, atol=1e-6)


@pytest.mark.parametrize("action", ["absolute", "relative_joints", "gripper_poses"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_space_and_kind_trains_and_returns_from_a_checkpoint(
    kind: str,
    action: str,
    demonstrations: EpisodeStore,
    measured: Statistics,
    configuration: Configuration,
    tmp_path: Path,
) -> None:
    episodes = demonstrations.episodes()
    model = configuration(f"+policy={kind}", f"+action={action}", SMOOTH)
    contract = episodes[0].attributes.contract
    statistics = add_action_statistics(measured, model, contract, episodes)
    policy = build_policy(model, contract, statistics)
    assert isinstance(policy, ChunkPolicy)
    fit_posture(policy, episodes)
    assert policy.posture is not None
    assert policy.posture.weight.any()
    batch = window_batch(demonstrations, policy)
    policy.train().loss(batch).backward()  # type: ignore[no-untyped-call]
    assert all(
        parameter.grad is None or parameter.grad.isfinite().all()
        for parameter in policy.parameters()
    )
    generator = torch.Generator().manual_seed(0)
    chunk = policy.eval().predict(batch, generator)
    save_policy(tmp_path / "c", policy, model, {})
    again = load_policy(tmp_path / "c")
    assert isinstance(again, ChunkPolicy)
    assert again.posture is not None
    assert torch.equal(again.posture.weight, policy.posture.weight)
    assert torch.equal(again.predict(batch, torch.Generator().manual_seed(0)), chunk)


def window_batch(store: EpisodeStore, policy: ChunkPolicy) -> dict[str, Tensor]:
    cameras = [camera.name for camera in policy.contract.cameras]
    windows = Windows(store, chunk=policy.chunk, cameras=cameras)
    return {key: torch.from_numpy(each) for key, each in windows.batch([0, 3, 5]).items()}


def test_a_fit_halves_the_error_of_holding(
    demonstrations: EpisodeStore, measured: Statistics, configuration: Configuration
) -> None:
    """On the demonstrations themselves; the fit is the same each time."""
    episodes = demonstrations.episodes()
    contract = episodes[0].attributes.contract
    fits = []
    for linear in ("true", "false", "true"):
        model = configuration("+policy=diffusion", SMOOTH.replace("true", linear))
        policy = build_policy(model, contract, measured)
        assert isinstance(policy, ChunkPolicy)
        fit_posture(policy, episodes)
        assert policy.posture is not None
        fits.append(policy.posture)
    assert fits[0].scale.square().sum() < 0.25 * fits[1].scale.square().sum()
    assert torch.equal(fits[0].weight, fits[2].weight)


def test_the_state_conditions_the_network_with_a_mark_of_hidden_ones(
    make_policy: Callable[..., ChunkPolicy], make_batch: Any
) -> None:
    policy, batch = make_policy(), make_batch(3)
    encoder = policy.observation_encoder
    assert state_width(encoder) == 14 + 1
    state = encoder(batch).state
    assert state is not None
    assert not state[:, -1].any(), "at run time nothing is hidden"
    policy.train()
    torch.manual_seed(0)
    hidden = torch.cat([encoder(batch).state for _ in range(20)])[:, -1] == 1  # type: ignore[misc]
    torch.manual_seed(0)
    values = torch.cat([encoder(batch).state for _ in range(20)])  # type: ignore[misc]
    assert 0.3 < hidden.float().mean() < 0.7
    assert not values[hidden, :-1].any()
    assert values[~hidden, :-1].any(dim=1).all()
    policy.eval()
    moved = {**batch, "joints/position": batch["joints/position"] + 0.2}
    one, other = encoder(batch), encoder(moved)
    assert torch.equal(one.tokens, other.tokens), "the scene is read without the joints"
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        first = policy.generate(one, generator.manual_seed(0))
        assert (policy.generate(other, generator.manual_seed(0)) - first).abs().max() > 1e-5


def test_velocities_are_read_if_the_data_have_them(
    contract: Contract,
    statistics: Statistics,
    configuration: Configuration,
    observe: Observe,
) -> None:
    rows = np.stack([-np.ones(14), np.ones(14)])
    velocity = {"joints/velocity": statistics_of(lambda: iter([rows]))}
    both = Statistics({**statistics, **velocity})
    assert JointState(statistics).keys == ("joints/position",)
    policy = build_policy(configuration("+policy=diffusion", SMOOTH), contract, both).eval()
    assert "joints/velocity" in policy.observation_encoder.keys
    with pytest.raises(ValueError, match="observation key 'joints/velocity'"):
        policy.session(0).plan(observe(0))
    moving = observe(0) | {"joints/velocity": np.zeros(14, np.float32)}
    assert policy.session(0).plan(moving).action.shape == (8, 14)


def test_wrong_settings_are_refused(
    contract: Contract, statistics: Statistics, configuration: Configuration
) -> None:
    differences = replace(
        contract,
        action=tuple(
            ActionDimension(each.name, each.arm, each.kind, "relative", each.unit, each.frame)
            for each in contract.action
        ),
    )
    model = configuration("+policy=flow", SMOOTH.replace("null", "true"))
    with pytest.raises(ValueError, match=r"posture.anchored is true.* posture.anchored=false"):
        build_policy(model, differences, statistics)
    loose = build_policy(configuration("+policy=flow", SMOOTH), differences, statistics)
    assert isinstance(loose, ChunkPolicy)
    assert loose.posture is not None
    assert not loose.posture.anchored, "by default only chunks that can hold are anchored"
    for wrong in ("coefficients: 0", "ridge: -1"):
        with pytest.raises(ValueError, match=r"posture\.(coefficients|ridge)"):
            build_policy(configuration("+policy=flow", POSTURE % wrong), contract, statistics)
    poses = ("+action=gripper_poses", "+action_places=noisy_pose")
    with pytest.raises(ValueError, match=r"noisy_pose with policy.posture.*posture=null"):
        build_policy(
            configuration("+policy=diffusion", *poses, SMOOTH),
            contract,
            with_poses(contract, statistics),
        )


def with_poses(contract: Contract, statistics: Statistics) -> Statistics:
    """Adds statistics of gripper poses."""
    rows = np.stack([-np.ones(20), np.ones(20)])
    space = GripperPoses(contract=contract)
    return Statistics({**statistics, space.statistics_key(8): statistics_of(lambda: iter([rows]))})


def test_fits_need_windows_and_joints(
    contract: Contract, statistics: Statistics, configuration: Configuration
) -> None:
    policy = build_policy(configuration("+policy=diffusion", SMOOTH), contract, statistics)
    assert isinstance(policy, ChunkPolicy)
    assert policy.posture is not None

    def none() -> Iterator[FittedWindows]:
        return iter(())

    with pytest.raises(ValueError, match="no windows"):
        policy.posture.fit(none)
    with pytest.raises(ValueError, match=r"'joints/position'.*policy.posture=null"):
        JointState(Statistics({"action": statistics["action"]}))


@pytest.fixture
def act(contract: Contract, statistics: Statistics) -> ActPolicy:
    """A small ACT over tokens with places, with smooth chunks."""
    torch.manual_seed(0)
    encoder = ObservationSettings(
        encoding=partial(CayleyString, wavelengths=(0.04, 2.0)),
        coordinates=MetricPlaces(),
        dim=32,
        depth=1,
        joints="condition",
    )
    settings = ActSettings(
        observation_encoder=partial(ObservationEncoder, encoder),
        posture=Posture(coefficients=4),
        chunk=8,
        dim=32,
        heads=2,
        feed_forward=64,
        encoder_layers=1,
    )
    return ActPolicy(settings, contract, statistics).eval()


def test_act_reads_the_state_as_a_token(act: ActPolicy, make_batch: Any) -> None:
    conditioning = act.observation_encoder(make_batch(3))
    assert conditioning.state is not None
    moved = replace(conditioning, state=conditioning.state + 1)
    with torch.inference_mode():
        one, other = (act.generate(each, torch.Generator()) for each in (conditioning, moved))
    assert (one - other).abs().max() > 1e-5


def test_chunks_of_act_are_smooth_and_anchored(act: ActPolicy, make_batch: Any) -> None:
    batch = make_batch(3)
    chunk = act.predict(batch, torch.Generator())
    measured = batch["joints/position"].clamp(act.action_range.low, act.action_range.high)
    torch.testing.assert_close(chunk[:, 0, ARMS], measured[:, ARMS], rtol=0, atol=1e-4)
    generated = act.generate(act.observation_encoder(batch), torch.Generator())
    torch.testing.assert_close(act.smooth(generated), generated, rtol=0, atol=1e-5)
    act.train().loss(batch).backward()  # type: ignore[no-untyped-call]
