"""What the joints alone tell about a chunk, and the smooth remainder that a network generates.

Commanded joints of the next second follow from the measured ones within a few milliradians: the
arm stays where it is, or goes on as it moves. A network that generates them from noise learns this
late: after a training of 800 steps its first actions were off by 40 to 120 mrad, those of a linear
map of joints and velocities by 11 to 16. So the map is fitted in closed form, and the network
generates what is left: a smooth curve that begins where the map begins.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, NOT_NEGATIVE
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.positions.precision import without_autocast
from stringline.policies.action_spaces.space import ActionSpace, HeldActions, can_hold
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.normaliser import JointState, Normaliser

LEAST_SCALE = 0.002
"""Smallest standard deviation of a remainder, in units of normalised actions."""

_UNFITTED_SCALE = 2.0  # Differences of two numbers between -1 and 1 are within it.
_FOLLOWING = 30.0  # Weight of fixed actions beside the size of the correction.
_SCALE_COEFFICIENTS = 4  # Of the logarithm of the scale, a polynomial of the time.


class Posture(nn.Module):
    """The settings of a `ChunkRemainder`."""

    def __init__(
        self,
        *,
        linear: bool = True,
        anchored: bool | None = None,
        coefficients: int | None = 8,
        ridge: float = 1e-4,
    ) -> None:
        """Sets them.

        Args:
            linear: Whether a linear map of joints and velocities, fitted to the training data, is
                part of each action; otherwise that part is the measured joints.
            anchored: Whether the first action of a chunk is that part alone, except for grippers;
                if None, in chunks of absolute targets of measured joints.
            coefficients: Coefficients of a polynomial for each number of a chunk except for those
                of grippers; the polynomial of an anchored chunk has no constant. If None, actions
                are free.
            ridge: Penalty of the weights of the map, which is fitted in closed form, in units of
                the mean squared state.

        Raises:
            ValueError: A number is out of range, or nothing is chosen.
        """
        super().__init__()
        NOT_NEGATIVE.check(**{"posture.ridge": ridge})
        if coefficients is not None:
            COUNT.check(**{"posture.coefficients": coefficients})
        self.linear = linear
        self.anchored = anchored
        self.coefficients = coefficients
        self.ridge = ridge


@dataclass(frozen=True, kw_only=True)
class FittedWindows:
    """Windows of an episode, without images, for `ChunkRemainder.fit`.

    Attributes:
        observation: The keys that the remainder and the action space read, (n, ...) each.
        actions: (n, T, D) actions as numbers of the action space.
        inside: (n, T) bool, False beyond the end of the episode.
    """

    observation: Mapping[str, Tensor]
    actions: Tensor
    inside: Tensor


class ChunkRemainder(nn.Module):
    """Converts normalised actions to the numbers that a network generates, and back.

    A normalised action t of a chunk is h + W_t [1, s] + scale_t g_t, clipped to the range of the
    data: h holds the measured joints (zero for grippers, and for actions that cannot hold), s are
    the normalised joints and velocities, and g is the remainder, which the network generates. W and
    the scale are fitted to the training windows; before that W is zero. They are in the weights of
    a checkpoint. The scale rises along the chunk, as the error of the linear part does, so g has
    mean square 1 at every action: no action counts for more in the loss, and an error of the
    network moves an action as far as the linear part is unsure of it.

    Smooth numbers are polynomials of the time in the chunk: noise, the input and the output of the
    network are projected on them. Their noise is larger, so that it still has variance 1 per
    action. Grippers, which jump, stay free.

    Attributes:
        weight: (T, 1 + S, D) W.
        scale: (T, D) standard deviation of the remainder, smooth along the chunk.
        reach: (D,) largest magnitude of g in the training data.
        gain: (D,) factor of the standard deviation of noise.
        anchored: Whether smooth chunks begin with the linear part.
    """

    weight: Tensor
    scale: Tensor
    reach: Tensor
    gain: Tensor
    basis: Tensor
    free: Tensor

    def __init__(
        self,
        settings: Posture,
        *,
        space: ActionSpace,
        contract: Contract,
        statistics: Statistics,
        action_range: Normaliser,
        chunk: int,
    ) -> None:
        """Builds the map, without weights, and the basis.

        Args:
            settings: The settings.
            space: The action space of the policy.
            contract: Contract of its data.
            statistics: Statistics of the training data, with those of the joints.
            action_range: Normaliser of the numbers of the action space.
            chunk: Actions per chunk, T.

        Raises:
            ValueError: There are no measured joints, or chunks are to be anchored whose actions
                cannot hold the robot.
        """
        super().__init__()
        holds = can_hold(contract)
        if settings.anchored and not holds:
            raise ValueError(
                "posture.anchored is true with actions that cannot hold the measured joints; "
                "allowed: absolute joint targets, or posture.anchored=false."
            )
        self.linear = settings.linear
        self.ridge = settings.ridge
        self.anchored = holds if settings.anchored is None else settings.anchored
        self.state = JointState(statistics)
        self.keys = tuple(dict.fromkeys((*self.state.keys, *space.reads)))
        self.held = HeldActions(contract) if holds else None
        # Not submodules here, as the policy owns them.
        self._space = (space,)
        self._range = (action_range,)
        self.chunk = chunk
        dim = space.dim
        self.register_buffer("weight", torch.zeros(chunk, 1 + self.state.dim, dim))
        self.register_buffer("scale", torch.full((chunk, dim), _UNFITTED_SCALE))
        self.register_buffer("reach", torch.ones(dim))
        free = torch.zeros(dim, dtype=torch.bool)
        free[list(space.openings)] = True
        if settings.coefficients is None:
            # One polynomial for each action but an anchored first one: all other actions are free.
            basis = polynomials(chunk, chunk, anchored=self.anchored)
            free = free if self.anchored else torch.ones_like(free)
        else:
            basis = polynomials(chunk, settings.coefficients, anchored=self.anchored)
        self.register_buffer("basis", basis.float(), persistent=False)
        self.register_buffer("free", free, persistent=False)
        gain = torch.where(free, 1.0, (chunk / basis.shape[1]) ** 0.5)
        self.register_buffer("gain", gain, persistent=False)

    def base(self, observation: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Returns the linear part of normalised actions, (B, T, D), in the type of `like`."""
        with without_autocast(like):
            held = self._hold(observation, like)
            if not self.linear:
                return held
            features = self._features(observation).to(like.dtype)
            weight = self.weight.to(like.dtype)
            # Products and sums: a matmul on a GPU may be rounded to TF32.
            return held + (features[:, None, :, None] * weight).sum(dim=2)

    def remainder(self, normal: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the remainder of normalised actions (B, T, D), the same shape."""
        return (normal - self.base(observation, normal)) / self.scale.to(normal.dtype)

    def restore(self, remainder: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the normalised actions of a remainder (B, T, D), within the range of the data."""
        normal = self.base(observation, remainder) + self.scale.to(remainder.dtype) * remainder
        reach = self._range[0].reach
        return normal.clamp(-reach, reach)

    def smooth(self, rows: Tensor) -> Tensor:
        """Projects chunks (..., T, D) on the basis; grippers stay."""
        if bool(self._all_free):
            return rows
        with without_autocast(rows):
            basis = self.basis.to(rows.dtype)
            return torch.where(self.free, rows, basis @ (basis.mT @ rows))

    def noise(self, noise: Tensor) -> Tensor:
        """Returns standard normal numbers (..., T, D) as smooth noise of variance 1 per action."""
        return self.smooth(noise) * self.gain.to(noise.dtype)

    def follow(self, chunks: Tensor, prefix: NormalisedPrefix) -> Tensor:
        """Bends smooth chunks (B, K, R, D) towards the fixed actions of a prefix.

        By the smallest change of the coefficients that brings the chunks near these actions, each
        by its weight; so the free actions go on from the fixed ones without a jump.
        """
        if bool(self._all_free):
            return chunks
        with without_autocast(chunks):
            weight = prefix.weight[: self.chunk].to(chunks.dtype)
            basis = self.basis.to(chunks.dtype)
            weighted = basis * (_FOLLOWING * weight[:, None])
            own = chunks[..., : self.chunk, :]
            off = prefix.action[:, None, : self.chunk].to(chunks.dtype) - own
            matrix = basis.mT @ weighted + torch.eye(basis.shape[1]).to(basis)
            change = basis @ torch.linalg.solve(matrix, weighted.mT @ off)
            bent = torch.where(self.free, own, own + change)
        return torch.cat((bent, chunks[..., self.chunk :, :]), dim=-2)

    @property
    def action_range(self) -> Normaliser:
        """The normaliser of the numbers of the action space."""
        return self._range[0]

    @torch.no_grad()
    def fit(self, windows: Callable[[], Iterator[FittedWindows]]) -> None:
        """Fits the map by ridge regression in closed form, and the scale of the remainder.

        Args:
            windows: Returns the training windows, episode by episode; it is called twice.

        Raises:
            ValueError: There are no windows.
        """
        if self.linear:
            self.weight.copy_(self._ridge_weights(windows()))
        count = torch.zeros(self.chunk, 1, dtype=torch.float64)
        squares = torch.zeros(self.scale.shape, dtype=torch.float64)
        largest = torch.zeros_like(squares)
        for each in windows():
            normal = self._normal(each)
            inside = self._inside(each)[..., None]
            rest = ((normal - self.base(self._here(each), normal)) * inside).double().cpu()
            count += inside.sum(dim=0).cpu()
            squares += rest.square().sum(dim=0)
            if len(rest):
                largest = torch.maximum(largest, rest.abs().amax(dim=0))
        if not count.any():
            raise ValueError("There are no windows to fit the posture to.")
        scale = _smooth_scale((squares / count.clamp(min=1)).sqrt(), count[:, 0] > 0)
        self.scale.copy_(scale)
        self.reach.copy_((largest / scale).amax(dim=0).clamp(min=1.0))

    def _ridge_weights(self, windows: Iterator[FittedWindows]) -> Tensor:
        """Returns W: each action's own regression, over the windows that contain it."""
        chunk, size, dim = self.weight.shape
        gram = torch.zeros(chunk, size, size, dtype=torch.float64)
        cross = torch.zeros(chunk, size, dim, dtype=torch.float64)
        for each in windows:
            here = self._here(each)
            normal = self._normal(each)
            features = self._features(here).double().cpu()
            inside = self._inside(each).double().cpu()
            target = (normal - self._hold(here, normal)).double().cpu() * inside[..., None]
            gram += torch.einsum("nt,ns,nr->tsr", inside, features, features)
            cross += torch.einsum("ns,ntd->tsd", features, target)
        count = gram[:, 0, 0]
        penalty = torch.ones(size, dtype=torch.float64)
        penalty[0] = 0.0  # The mean is free.
        gram += torch.diag_embed(self.ridge * count[:, None] * penalty)
        gram[count == 0] = torch.eye(size, dtype=torch.float64)
        weights: Tensor = torch.linalg.lstsq(gram, cross, driver="gelsd").solution
        return weights

    def _normal(self, windows: FittedWindows) -> Tensor:
        return self._range[0].normalise(windows.actions.to(self.weight))

    def _here(self, windows: FittedWindows) -> dict[str, Tensor]:
        """Returns the observation on the device of the weights."""
        return {key: value.to(self.weight.device) for key, value in windows.observation.items()}

    def _inside(self, windows: FittedWindows) -> Tensor:
        return windows.inside.to(self.weight.device)

    def _features(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns 1 and the state, (B, 1 + S)."""
        return nn.functional.pad(self.state(observation), (1, 0), value=1.0)

    def _hold(self, observation: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Returns the normalised actions (B, 1, D) that hold the joints; zero for grippers."""
        if self.held is None:
            return like.new_zeros(len(like), 1, like.shape[-1])
        action = self.held(observation)[:, None].to(like.dtype)
        held = self._range[0].normalise(self._space[0].encode(action, observation))
        openings = list(self._space[0].openings)
        if openings:
            held[..., openings] = 0.0
        return held.to(like.dtype)

    @property
    def _all_free(self) -> bool:
        return self.basis.shape[1] == self.chunk and not self.anchored


def _smooth_scale(deviation: Tensor, known: Tensor) -> Tensor:
    """Returns standard deviations (T, D) that are smooth along the chunk, float64.

    Actions that no window contains, not `known` (T,), have that of the last one before.
    """
    last = int(known.nonzero()[-1])
    logarithm = deviation.clamp(min=LEAST_SCALE).log()
    logarithm[last + 1 :] = logarithm[last]
    basis = polynomials(len(deviation), _SCALE_COEFFICIENTS, anchored=False)
    return (basis @ (basis.mT @ logarithm)).exp()


def polynomials(chunk: int, count: int, *, anchored: bool) -> Tensor:
    """Returns an orthonormal basis (T, n) of polynomials of the time in a chunk, float64.

    Their degree is below `count`; anchored ones are zero at the first action, of a degree up to
    `count`. n is at most the number of actions that are not fixed.
    """
    time = np.linspace(-1.0, 1.0, chunk)
    # Chebyshev polynomials: powers of the time would be nearly parallel.
    count = min(count, chunk - anchored)
    values = np.polynomial.chebyshev.chebvander(time, max(count - 1, 0))
    if anchored:
        values = values * (time[:, None] + 1.0)
    orthonormal, _ = np.linalg.qr(values[:, :count])
    return torch.from_numpy(orthonormal)
