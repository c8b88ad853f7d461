"""The settings of a training run, besides policy and trainer, and its initial weights.

A new run can begin with the weights of a checkpoint, or of parts of it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, WHOLE, Range
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.interfaces import LoggerFactory
from stringline.encoders.training.partial_loading import (
    IMAGE_ENCODER,
    InitialParts,
    LoadedParts,
    RowNames,
    is_perception,
    load_partial_weights,
)
from stringline.encoders.training.trainer import build_augmentation
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.checkpoints.load import checkpoint_digest, find_checkpoint
from stringline.policies.checkpoints.training_record import RecordedExecution
from stringline.policies.observation.instruction import TextEmbedding

if TYPE_CHECKING:  # It loads the simulation, which most trainings do not need.
    from stringline.sim.training.training_evaluation import TrainingEvaluation

logger = logging.getLogger(__name__)

SHARES = Range(above=0, most=1)
# The encoder of a policy has other cameras, and has no CLS.
_POLICY_ENCODER = "observation_encoder"
_TAKEN = ("tokenise", "blocks")
_OWN = ("tokenise.camera_mark", "blocks.registers")


@dataclass(frozen=True)
class Initialisation(InitialParts):
    """A checkpoint and the parts of it that initialise a new run.

    Attributes:
        keep_normalisation: Whether to keep the checkpoint's ranges of joints and actions. With the
            ranges of new data, the same output of the network means another angle.
    """

    keep_normalisation: bool = False

    def statistics(self, contract: Contract, measured: Statistics) -> Statistics:
        """Returns the statistics of the new policy, given contract and statistics of the new data.

        Raises:
            ValueError: The ranges are to be kept, but joints or actions differ.
        """
        if not self.keep_normalisation:
            return measured
        known, statistics = self._description()
        if other := [
            name for name in ("joints", "action") if getattr(known, name) != getattr(contract, name)
        ]:
            raise ValueError(
                f"keep_normalisation=true, but {' and '.join(other)} of {self.checkpoint} differ "
                f"from "
                f"those of the data. {' '.join(known.incompatibilities(contract))}"
            )
        return Statistics(statistics, instructions=measured.instructions)

    def load(self, policy: LearnedPolicy) -> LoadedParts:
        """Loads the chosen parts into a policy and logs them.

        Raises:
            ValueError: No parts are chosen and the contract differs, or a part is unknown or does
                not fit.
        """
        where = find_checkpoint(self.checkpoint)
        if is_perception(description := load_description(where)):
            return self._load_perception(where, description, policy)
        mismatches = self._description()[0].incompatibilities(policy.contract)
        if mismatches and not self.include and not self.exclude:
            raise ValueError(
                f"{where} was trained for another contract. {' '.join(mismatches)} Load the "
                f"encoder alone (include=[observation_encoder]), or exclude the parts that do not "
                f"fit (exclude=mismatched)."
            )
        for mismatch in mismatches:
            logger.warning("%s was trained for another contract: %s", where, mismatch)
        rows = _instruction_rows(description, policy)
        loaded = load_partial_weights(
            where, policy, include=self.include, exclude=self.exclude, rows=rows
        )
        logger.info("From %s, %s.", where, loaded)
        for names in rows.values():
            if unknown := [text for text in names.own if text not in names.stored]:
                logger.info("%s does not know the instructions %s.", where, ", ".join(unknown))
        return loaded

    def _load_perception(
        self, where: Path, description: Mapping[str, Any], policy: LearnedPolicy
    ) -> LoadedParts:
        """Loads the image encoder of a network of perception into that of a policy.

        Marks of cameras and registers stay those of the policy.
        """
        registers = description["model"]["image_encoder"].get("registers", 1)
        own = [f"{_POLICY_ENCODER}.{part}" for part in (_OWN if registers else _OWN[:1])]
        loaded = load_partial_weights(
            where,
            policy,
            include=self.include or [f"{_POLICY_ENCODER}.{part}" for part in _TAKEN],
            exclude=self.exclude if isinstance(self.exclude, str) else [*self.exclude, *own],
            renamed={IMAGE_ENCODER: _POLICY_ENCODER},
        )
        logger.info("From %s, %s.", where, loaded)
        return loaded

    def describe(self) -> dict[str, Any]:
        """Returns the settings that decide the initial weights, as plain data."""
        digest = checkpoint_digest(self.checkpoint)
        return self.described(digest) | {"keep_normalisation": self.keep_normalisation}

    def _description(self) -> tuple[Contract, Statistics]:
        where = find_checkpoint(self.checkpoint)
        plain = load_description(where)
        try:
            return Contract.from_dict(plain["contract"]), Statistics.from_dict(plain["statistics"])
        except KeyError as error:
            raise ValueError(f"{where} is not a policy: its description lacks {error}.") from error


def _instruction_rows(description: Mapping[str, Any], policy: LearnedPolicy) -> dict[str, RowNames]:
    """Returns the texts of the rows of instructions, in a checkpoint and in a policy."""
    own = policy.observation_encoder.instruction
    settings = description["model"].get("observation_encoder", {}).get("instruction")
    if own is None or settings is None:
        return {}
    stored = settings.get("names") or Statistics.from_dict(description["statistics"]).instructions
    if isinstance(own, TextEmbedding) and own.model != settings.get("model"):
        stored = ()  # Features of another encoder.
    return {f"observation_encoder.instruction.{own.rows}": RowNames(tuple(stored), own.names)}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of data, initial weights and evaluation.

    Attributes:
        oversample_first_s: See `WindowBatches`.
        oversample_factor: See `WindowBatches`.
        equal_tasks: See `WindowBatches`.
        corrections: Share of the windows in which somebody leads who took over from a policy, and
            of labels, above 0 to 1; the others are those of demonstrations. If None, all windows
            are alike, also those that a policy leads.
        corrections_lead_s: Seconds before a takeover whose windows count as corrections; their
            targets are the actions of the policy, or labels.
        labels: Whether windows with labels of an expert have these as targets.
        pad_last_action_s: Seconds after the end of an episode for which its last action is a
            target.
        held_out: Number of held-out episodes of each store, for probe and validation; at most a
            fifth of the store; see `split_names`.
        augmentation: Configuration of an `Augmentation` of training batches; if None, no
            augmentation.
        validation_windows: Number of held-out windows of the validation loss; 0: no validation.
        initialisation: Checkpoint of the initial weights; if None, random weights.
        evaluate: Evaluation in simulation during training; if None, no evaluation.
        execution: Execution for evaluations of the checkpoint, stored in it; if None, unknown.
        recipe: Choices and options of the command, plain data, stored in the checkpoint.
        log: Factory of a logger besides the `history.jsonl` of the run; if None, no further logger.

    Raises:
        ValueError: A number is out of range.
    """

    oversample_first_s: float = 0.0
    oversample_factor: float = 1.0
    equal_tasks: bool = False
    corrections: float | None = None
    corrections_lead_s: float = 0.0
    labels: bool = False
    pad_last_action_s: float = 0.0
    held_out: int = 16
    augmentation: Mapping[str, Any] | None = None
    validation_windows: int = 256
    initialisation: Initialisation | None = None
    evaluate: "TrainingEvaluation | None" = None
    execution: RecordedExecution | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    log: LoggerFactory | None = None

    def __post_init__(self) -> None:
        WHOLE.check(held_out=self.held_out, validation_windows=self.validation_windows)
        NOT_NEGATIVE.check(
            oversample_first_s=self.oversample_first_s,
            pad_last_action_s=self.pad_last_action_s,
            corrections_lead_s=self.corrections_lead_s,
        )
        self._check_corrections()
        POSITIVE.check(oversample_factor=self.oversample_factor)
        if not isinstance(self.equal_tasks, bool):
            raise ValueError(f"dataset.equal_tasks is {self.equal_tasks!r}; allowed: true, false.")

    def _check_corrections(self) -> None:
        if self.corrections is not None:
            SHARES.check(**{"dataset.corrections": self.corrections})
        if not isinstance(self.labels, bool):
            raise ValueError(f"dataset.labels is {self.labels!r}; allowed: true, false.")
        if self.corrections is None and (self.labels or self.corrections_lead_s):
            name = "labels" if self.labels else "corrections_lead_s"
            raise ValueError(
                f"dataset.{name} needs a share of corrections: set dataset.corrections=0.5, say."
            )

    @property
    def correcting(self) -> dict[str, Any]:
        """The settings of corrections that decide on the weights of a run; empty without them."""
        if self.corrections is None:
            return {}
        names = ("corrections", "corrections_lead_s", "labels")
        return {name: getattr(self, name) for name in names}

    def build_augmentation(self) -> Augmentation | None:
        """Builds the augmentation; None if it has no transforms."""
        return build_augmentation(self.augmentation)

    @property
    def reads_segments(self) -> bool:
        """Whether the augmentation needs the segments of images."""
        augmentation = self.build_augmentation()
        return augmentation is not None and augmentation.reads_segments

    @property
    def transforms(self) -> dict[str, Any] | None:
        """The configuration of the augmentation; None if it has no transforms."""
        if self.augmentation is None or self.build_augmentation() is None:
            return None
        return dict(self.augmentation)
