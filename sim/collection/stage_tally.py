"""Counts of clips of stages, of failed episodes and of what was left out."""

import logging
from collections import Counter
from dataclasses import dataclass, field

from stringline.sim.collection.stage_clips import EMPTY_IN_A_ROW, StageEpisode

logger = logging.getLogger(__name__)


@dataclass
class StageTally:
    """Counts over episodes.

    Attributes:
        clips: Number of stored clips.
        episodes: Number of episodes.
        failed: Number of episodes in which the expert failed.
        short: Number of parts that were left out since they were too short, by label.
    """

    clips: int = 0
    episodes: int = 0
    failed: int = 0
    short: Counter[str] = field(default_factory=Counter)
    _empty: int = 0

    def add(self, episode: StageEpisode, kept: int) -> None:
        """Counts an episode, of which `kept` clips are stored, and logs its failure.

        Raises:
            ValueError: The last 30 episodes had no clip.
        """
        self.clips += kept
        self.episodes += 1
        self.short.update(episode.short)
        if episode.failure:
            self.failed += 1
            logger.info("The expert failed in %s: %s.", episode.name, episode.failure.rstrip("."))
        self._empty = 0 if episode.clips else self._empty + 1
        if self._empty == EMPTY_IN_A_ROW:
            raise ValueError(
                f"{self._empty} episodes in a row had no clip; allowed: fewer than {self._empty}. "
                f"{self} Choose other tasks, or a smaller clip_frames."
            )

    def __str__(self) -> str:
        """Returns the counts in sentences."""
        said = (
            f"{self.clips} clips of {self.episodes} episodes; the expert failed in {self.failed}."
        )
        if not self.short:
            return said
        counts = ", ".join(f"{label} ({count})" for label, count in sorted(self.short.items()))
        return f"{said} Left out for fewer control steps than clip_frames: {counts}."
