"""The environment of robosuite that a file of robomimic or LIBERO describes in `env_args`."""

import json
from collections.abc import Mapping
from typing import Any

from stringline.datasets.files.limits import MOST_METADATA_BYTES
from stringline.datasets.formats import hdf5


def environment_of(file: Any) -> Mapping[str, Any]:
    """Returns the description of the environment in a file; empty without it.

    Raises:
        ValueError: It is damaged.
    """
    text = hdf5.attribute(hdf5.item_at(file, "data"), "env_args")
    if text is None:
        return {}
    if not isinstance(text, str | bytes) or len(text) > MOST_METADATA_BYTES:
        raise ValueError(
            f"data.attrs['env_args'] is a {type(text).__name__}; allowed: JSON with at most "
            f"{MOST_METADATA_BYTES} bytes."
        )
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"data.attrs['env_args'] is not JSON: {error}.") from error
    if not isinstance(found, dict) or not isinstance(found.get("env_kwargs", {}), dict):
        raise ValueError("data.attrs['env_args'] is not a description of an environment.")
    return found


def robots_of(environment: Mapping[str, Any]) -> str:
    """Returns the names of the robots of an environment."""
    robots = environment.get("env_kwargs", {}).get("robots", "unknown")
    return robots if isinstance(robots, str) else "+".join(map(str, robots))
