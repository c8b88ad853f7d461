"""Options with the name of a configuration group that another command has, such as `task`.

Hydra takes `task=NAME` for a choice wherever the folder `configs/task` exists, so these options are
set after the composition.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from stringline.datasets.files.yaml_file import read_yaml


def plain_options(
    folder: Path, name: str, overrides: Sequence[str]
) -> tuple[list[str], dict[str, object]]:
    """Divides overrides into those for Hydra, and values of options that Hydra takes for choices.

    Args:
        folder: Folder of the configuration files.
        name: The primary configuration, without `.yaml`.
        overrides: The `key=value` arguments.

    Raises:
        ValueError: The value of such an option is a list of values for a sweep.
    """
    options: dict[str, object] = {}
    rest = []
    own: set[str] | None = None
    for override in overrides:
        key = override.partition("=")[0]
        if (folder / key).is_dir():
            own = _own_options(folder / f"{name}.yaml") if own is None else own
        if own is not None and key in own and (folder / key).is_dir():
            options[key] = _value(override)
        else:
            rest.append(override)
    return rest, options


def _own_options(path: Path) -> set[str]:
    """Returns the options of a primary configuration that are not choices of a group."""
    plain = read_yaml("The configuration", path)
    entries = [entry for entry in plain.get("defaults", []) if isinstance(entry, Mapping)]
    groups = {str(key).split()[-1].lstrip("/").partition("@")[0] for e in entries for key in e}
    return {
        key
        for key, value in plain.items()
        if key != "defaults" and key not in groups and not isinstance(value, Mapping)
    }


def _value(override: str) -> object:
    parsed = OverridesParser.create().parse_override(override)
    if parsed.is_sweep_override():
        raise ValueError(
            f"{override} is several values; allowed: one. Quote a value that contains a comma: "
            f"\"{parsed.key_or_group}='a, b'\"."
        )
    return parsed.value()
