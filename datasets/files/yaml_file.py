"""YAML files, with errors that name the file."""

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from stringline.datasets.files.limits import MOST_YAML_BYTES

# Nodes of a file whose aliases are replaced by what they stand for.
MOST_NODES = 1_000_000
# Nodes of the text itself: PyYAML reads about 20,000 in a second.
MOST_WRITTEN = 100_000
DEEPEST = 100


def read_yaml(kind: str, path: Path) -> Any:
    """Returns the content of a file; messages begin with `kind`, such as "The limits file".

    Raises:
        ValueError: The file cannot be read, is not valid YAML, or expands to too much.
    """
    try:
        # Opening a pipe would wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{kind} {path} is not a file.")
            data = file.read(MOST_YAML_BYTES + 1)
        if len(data) > MOST_YAML_BYTES:
            raise ValueError(f"{kind} {path} has more than the allowed {MOST_YAML_BYTES} bytes.")
        return parse_yaml(data.decode())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ValueError(f"{kind} {path} cannot be read: {reason}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{kind} {path} is not valid YAML: {error}.") from error


def parse_yaml(text: str) -> Any:
    """Returns the content of a text, as `yaml.safe_load` does.

    Aliases of aliases let a short text stand for a huge tree, which `safe_load` returns at once and
    whose first reader never ends. So the nodes are counted before anything is made of them.

    Raises:
        yaml.YAMLError: The text is not valid YAML, gives a key twice, contains itself, stands for
            more than a million nodes or has more than 100,000 of its own, or is nested more than
            100 levels deep.
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _count(root, {})
        return loader.construct_document(root)
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Reads texts of a limited depth, whatever the interpreter's limit of recursion is."""

    _depth = 0
    _written = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Returns the next node, as PyYAML's composer does."""
        if self._depth == DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} levels deep")
        self._written += 1
        if self._written > MOST_WRITTEN:
            raise yaml.YAMLError(f"it has more than {MOST_WRITTEN} entries; allowed: fewer")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _count(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """Returns the nodes below and including one; `counts` has those of completed nodes."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node in counts:
        if not counts[node]:
            raise yaml.YAMLError("an alias contains itself")
        return counts[node]
    counts[node] = 0
    children = node.value
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        children = [part for pair in children for part in pair]
    count = 1 + sum(_count(child, counts) for child in children)
    if count > MOST_NODES:
        raise yaml.YAMLError(
            f"with its aliases it has more than {MOST_NODES} entries; allowed: fewer"
        )
    counts[node] = count
    return count


def _check_keys(node: yaml.MappingNode) -> None:
    """Checks that no key is given twice, of which PyYAML would take the last one in silence."""
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = (key.tag, key.value)
        line = key.start_mark.line + 1
        if name in lines:
            raise yaml.YAMLError(
                f"the key {key.value!r} is given twice, in lines {lines[name]} and {line}; keep one"
            )
        lines[name] = line
