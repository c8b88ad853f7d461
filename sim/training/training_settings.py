"""The settings of a training run, besides policy and trainer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, WHOLE
from stringline.encoders.training.batch_augmentation import build_augmentation
from stringline.encoders.training.interfaces import LoggerFactory
from stringline.policies.checkpoints.training_record import RecordedExecution
from stringline.sim.training.initialisation import Initialisation
from stringline.sim.training.training_evaluation import TrainingEvaluation


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of data, initial weights and evaluation.

    Attributes:
        early_s: See `WindowBatches`.
        early_factor: See `WindowBatches`.
        equal_tasks: See `WindowBatches`.
        hold_s: Seconds after the end of an episode for which its last action is a target.
        held_out: Number of held-out episodes of each store, for probe and validation; at most a
            fifth of the store; see `split_names`.
        augmentation: Configuration of an `Augmentation` of training batches; None: no augmentation.
        validation_windows: Number of held-out windows of the validation loss; 0: no validation.
        initialisation: Checkpoint of the initial weights; None: random weights.
        evaluate: Evaluation in simulation during training; None: no evaluation.
        execution: Execution for evaluations of the checkpoint, stored in it; None: unknown.
        recipe: Choices and options of the command, plain data, stored in the checkpoint.
        log: Factory of a logger besides the `history.jsonl` of the run; None: no further logger.

    Raises:
        ValueError: A number is out of range.
    """

    early_s: float = 0.0
    early_factor: float = 1.0
    equal_tasks: bool = False
    hold_s: float = 0.0
    held_out: int = 16
    augmentation: Mapping[str, Any] | None = None
    validation_windows: int = 256
    initialisation: Initialisation | None = None
    evaluate: TrainingEvaluation | None = None
    execution: RecordedExecution | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    log: LoggerFactory | None = None

    def __post_init__(self) -> None:
        WHOLE.check(held_out=self.held_out, validation_windows=self.validation_windows)
        NOT_NEGATIVE.check(early_s=self.early_s, hold_s=self.hold_s)
        POSITIVE.check(early_factor=self.early_factor)
        if not isinstance(self.equal_tasks, bool):
            raise ValueError(f"dataset.equal_tasks is {self.equal_tasks!r}; allowed: true, false.")

    def build_augmentation(self) -> Augmentation | None:
        """Builds the augmentation; None if it has no transforms."""
        return build_augmentation(self.augmentation)

    @property
    def reads_segments(self) -> bool:
        """Whether the augmentation needs the segments of images."""
        augmentation = self.build_augmentation()
        return augmentation is not None and augmentation.reads_segments

    def record(self) -> dict[str, Any]:
        """Returns the entries of a checkpoint that these settings decide."""
        entries = {
            "execution": None if self.execution is None else self.execution.to_dict(),
            "recipe": dict(self.recipe),
            "initialisation": self.initialisation.describe() if self.initialisation else None,
        }
        return {name: entry for name, entry in entries.items() if entry}

    def fingerprint(self) -> dict[str, Any]:
        """Returns the settings that decide the weights of a run, as plain data."""
        augmentation = self.augmentation if self.build_augmentation() else None
        # Absent by default, so that runs which began before these settings can be continued.
        later = {"equal_tasks": self.equal_tasks, "hold_s": self.hold_s}
        return {name: value for name, value in later.items() if value} | {
            "early": [self.early_s, self.early_factor],
            "augmentation": None if augmentation is None else dict(augmentation),
            "initialisation": self.initialisation.describe() if self.initialisation else None,
        }
