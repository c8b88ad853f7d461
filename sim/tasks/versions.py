"""Versions of the rule of a task: its start poses, and its judge."""

from collections.abc import Mapping
from typing import Any, ClassVar

from stringline.sim.robots.start_range import StartRange
from stringline.sim.robots.workcells import ALOHA_CELL, Workcell

HOME_START = 1
VARIED_STARTS = 2


class VersionedTask:
    """The versions of a task.

    Attributes:
        cell: The workcell: arms and table.
        name: Name in `TASKS`, or `module:Class` for a user's task.
        start_range: Range of start poses in version 2; None: that of the cell.
        default_version: Version of the rule, unless the option `version` chooses another one. In
            version 1 the arms start at home, from version 2 on in `start_range`.
        judge_version: First version with the strict judge, which counts no dropped props; None:
            no version.
    """

    cell: ClassVar[Workcell] = ALOHA_CELL
    name: ClassVar[str]
    start_range: ClassVar[StartRange | None] = None
    default_version: ClassVar[int] = HOME_START
    judge_version: ClassVar[int | None] = None

    @classmethod
    def versions(cls) -> tuple[int, ...]:
        """Returns the versions of the task's rule, oldest first."""
        starts = (HOME_START, VARIED_STARTS) if cls.starts_within() else (HOME_START,)
        if cls.judge_version is None or cls.judge_version in starts:
            return starts
        return (*starts, cls.judge_version)

    @classmethod
    def starts_within(cls) -> StartRange | None:
        """Returns the range of start poses from version 2 on; None: the arms start at home."""
        return cls.start_range or cls.cell.start_range

    @classmethod
    def version_of(cls, options: Mapping[str, Any]) -> int:
        """Returns the version that the options of an episode choose, by default the usual one.

        Raises:
            ValueError: The task has no such version.
        """
        version = options.get("version", cls.default_version)
        if isinstance(version, bool) or version not in cls.versions():
            allowed = ", ".join(map(str, cls.versions()))
            raise ValueError(f"version of {cls.name} is {version!r}; allowed: {allowed}.")
        return int(version)
