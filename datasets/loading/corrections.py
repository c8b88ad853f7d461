"""Corrected episodes in a training: who led at each window, the labels of experts, the shares.

In a corrected episode a policy leads, and an expert or a person takes over (HG-DAgger: Kelly et
al., ICRA 2019, arXiv 1810.02890). Its windows after a takeover are examples of the task; those that
the policy leads show its errors. For those steps an expert can have left labels: what it would have
done there (DAgger: Ross et al., AISTATS 2011, arXiv 1011.0686). A label is a motion of the expert,
`expert/action`, not one action: of a chunk it is the beginning, and of a keypose the first event.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.contract import LABELLED_STEPS, LABELS, Array, Contract
from stringline.datasets.embodiments.arm_commands import arm_commands
from stringline.datasets.loading.keyposes import (
    NO_EVENT,
    PREFIX,
    Motion,
    NoKeyposeError,
    commanded_motion,
    find_keyposes,
    measured_poses,
)
from stringline.datasets.loading.window_settings import KeyposeSettings, with_commands
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode

Floats = NDArray[np.float64]


def until_takeover_s(attributes: EpisodeAttributes, steps: Array) -> Floats:
    """Returns the seconds from steps (N,) of an episode until somebody takes over from the policy.

    0 where an expert or a person leads, infinity if nobody takes over after a step, and NaN in an
    episode without a policy, such as a demonstration.
    """
    parts = attributes.interventions
    if parts is None:
        return np.full(len(steps), np.nan)
    found = np.full(len(steps), np.inf)
    for first, last in parts:
        ahead = np.where(steps < last, np.maximum(first - steps, 0), np.inf)
        found = np.minimum(found, ahead)
    return np.asarray(found / attributes.contract.control_hz)


def correction_weights(
    weights: ArrayLike, until_s: Floats, share: float | None, lead_s: float
) -> Floats:
    """Scales weights (N,) of windows so that corrections have a share of their sum.

    Corrections are the windows that somebody leads who took over, those of the `lead_s` seconds
    before, and labels. Windows that the policy leads otherwise get the weight 0.

    Args:
        weights: Weights of the windows.
        until_s: (N,) see `until_takeover_s`.
        share: Share of the corrections, above 0 to 1; if None, the weights stay.
        lead_s: Seconds before a takeover.

    Raises:
        ValueError: There are no corrections, or no demonstrations for the rest.
    """
    given = np.asarray(weights, np.float64)
    if share is None:
        return given
    corrected = until_s <= lead_s  # False for NaN.
    shown = np.isnan(until_s)
    total, rest = (float(given[part].sum()) for part in (corrected, shown))
    if not total:
        raise ValueError(
            f"dataset.corrections is {share:g}, but no episode has a part in which somebody took "
            "over from a policy. Record some with stringline-collect policy=CHECKPOINT, or set "
            "dataset.corrections=null."
        )
    if share < 1 and not rest:
        raise ValueError(
            f"dataset.corrections is {share:g}, but there are no demonstrations for the other "
            f"{100 * (1 - share):.0f} % of the windows. Add their store (dataset=mixture), or set "
            "dataset.corrections=1."
        )
    scaled = np.where(corrected, given * share / total, 0.0)
    return scaled + np.where(shown, given * (1 - share) / (rest or 1.0), 0.0)


@dataclass(frozen=True)
class Labels:
    """The labels of the windows of an episode.

    Attributes:
        window: (L,) numbers of the labelled windows among those of the episode.
        motion: (L, H, A) motions of the expert from the steps of the windows.
        keyposes: Targets by key, (L, ...), see `Keyposes.targets`; empty without keyposes.
    """

    window: NDArray[np.int64]
    motion: Array
    keyposes: dict[str, Array]

    @classmethod
    def of(
        cls,
        episode: StoredEpisode,
        steps: Array,
        contract: Contract,
        events: KeyposeSettings | None,
        *,
        gripper_commands: bool,
    ) -> "Labels | None":
        """Reads the labels of windows that begin at steps (N,); None if there are none.

        With `events`, labels without an event of a gripper are left out.
        """
        if LABELLED_STEPS not in episode.arrays:
            return None
        labelled = np.asarray(episode.arrays[LABELLED_STEPS]).tolist()
        actions = np.asarray(episode.arrays["action"])
        motions = episode.arrays[LABELS]
        places = {int(step): number for number, step in enumerate(steps)}
        commands = arm_commands(contract) if events else None
        measured = measured_poses(episode) if events else None
        windows: list[int] = []
        found: list[Array] = []
        targets: list[dict[str, Array]] = []
        for row, step in enumerate(labelled):
            if step not in places:
                continue
            course = np.concatenate([actions[:step], np.asarray(motions[row])])
            if events is not None and commands is not None and measured is not None:
                motion = commanded_motion(
                    course, commands, contract.control_hz, measured[: step + 1]
                )
                target = _first_event(motion, step, events)
                if target is None:
                    continue
                targets.append(target)
            if gripper_commands:
                course = with_commands(course, contract)
            windows.append(places[step])
            found.append(course[step:])
        if not windows:
            return None
        keys = targets[0] if targets else ()
        keyposes = {key: np.concatenate([each[key] for each in targets]) for key in keys}
        return cls(np.array(windows, np.int64), np.stack(found), keyposes)


def _first_event(motion: Motion, step: int, events: KeyposeSettings) -> dict[str, Array] | None:
    """Returns the targets of the first event from a step of a motion on, or None without one."""
    try:
        keyposes = find_keyposes(motion, events)
    except NoKeyposeError:
        return None
    targets = keyposes.targets(np.array([step]))
    return None if targets[f"{PREFIX}number"][0] == NO_EVENT else targets
