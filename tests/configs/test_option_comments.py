"""Every option of the configuration files has a comment with its meaning, which `--help` shows."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from stringline.datasets.command.configuration import Keys, option_comments

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.rglob("*.yaml"))
WIDEST = 128


def options(node: yaml.Node | None, above: Keys = ()) -> Iterator[Keys]:
    """Yields the options that need a comment.

    These are all except names with an underscore in front, values of other options (`${...}`),
    blocks of options, the entries of a list without a class, and the lists of default choices.
    """
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            if isinstance(item, yaml.MappingNode) and item.value[0][0].value == "_target_":
                yield from options(item, (*above, str(number)))
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        keys = (*above, key.value)
        if key.value.startswith("_") or keys == ("defaults",):
            continue
        is_block = isinstance(value, yaml.MappingNode) and bool(value.value)
        if not is_block and "${" not in str(value.value):
            yield keys
        if not (isinstance(value, yaml.MappingNode) and value.flow_style):
            yield from options(value, keys)


def test_each_option_has_a_comment() -> None:
    lacking = []
    for file in FILES:
        needed = set(options(yaml.compose(file.read_text(), Loader=yaml.SafeLoader)))
        lacking += [(file.name, keys) for keys in sorted(needed - set(option_comments(file)))]
    assert not lacking


def test_each_comment_is_a_whole_description_in_one_line() -> None:
    for file in FILES:
        for keys, comment in option_comments(file).items():
            where = f"{file.name}, {'.'.join(keys)}: {comment!r}"
            assert comment.endswith((".", "!", ")", ".md")), f"{where} continues elsewhere"
            assert comment.rstrip(".").lower() != keys[-1].replace("_", " "), where
        lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        assert max(map(len, lines)) <= WIDEST, file
