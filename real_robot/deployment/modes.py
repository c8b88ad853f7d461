"""In which ways `stringline-deploy` runs."""

from enum import StrEnum

from stringline.datasets.contract.arguments import unknown_name


class DeploymentMode(StrEnum):
    """Who decides, and what becomes of it."""

    RUN = "run"  # A policy moves the arms.
    DRY_RUN = "dry_run"  # A policy decides, the filter computes, and nothing is sent.
    SHADOW = "shadow"  # A policy moves the arms and, beside them, a twin.
    TELEOP = "teleop"  # A person moves the arms with leaders.
    # Nobody decides: the arms visit poses, and what cameras see there says where they sit.
    CALIBRATE = "calibrate"

    @classmethod
    def named(cls, name: str) -> "DeploymentMode":
        """Returns the mode of that name.

        Raises:
            ValueError: There is none; the message names the nearest.
        """
        if name not in {mode.value for mode in cls}:
            raise unknown_name("mode of deployment", name, [mode.value for mode in cls])
        return cls(name)
