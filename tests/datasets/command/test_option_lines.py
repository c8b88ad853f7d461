"""The lines of options are YAML of the same configuration."""

import yaml

from stringline.datasets.command.application import option_lines

SETTINGS = {
    "encoder": {
        "encoding": {"_target_": "stringline.Rope", "_partial_": True, "theta": None},
        "values": True,
    },
    "version": "1.15",
    "path": "???",
    "width": "${encoder.values}",
    "rate": 1e-3,
    "cameras": ["overhead", "wrist_left"],
    "options": {},
    "transforms": [
        {"_target_": "stringline.CropAndResize", "scale": [0.8, 1.0]},
        {"_target_": "stringline.Other", "inner": {"hue": 3.0}, "name": "a: b"},
    ],
    "entries": [{"task": "kuka_pick", "options": {"dim_light": 1.0}}],
    "poses": [[0.1, 0.2], [0.3, 0.4]],
}


def without_factories(value: object) -> object:
    """Returns plain data without the key `_partial_`."""
    if isinstance(value, list):
        return [without_factories(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_factories(inner) for key, inner in value.items() if key != "_partial_"}


def at(settings: object, keys: tuple[str, ...]) -> object:
    """Returns the value of an option."""
    for key in keys:
        settings = settings[int(key)] if isinstance(settings, list) else settings[key]  # type: ignore[index]
    return settings


def test_the_lines_are_the_configuration() -> None:
    text = "\n".join(line for _, line in option_lines(SETTINGS))
    assert yaml.safe_load(text) == without_factories(SETTINGS)


def test_each_line_has_the_keys_of_its_option() -> None:
    for keys, line in option_lines(SETTINGS, indent="  "):
        value = at(SETTINGS, keys)
        shown = yaml.safe_load(line.strip().removeprefix("- "))
        if isinstance(shown, dict) and len(keys) > 0 and keys[-1] in shown:
            assert shown[keys[-1]] in (value, None), line  # None: a block follows.
        else:
            assert shown == value, line


def test_options_precede_blocks_and_plain_lists_have_one_line() -> None:
    lines = [line for _, line in option_lines(SETTINGS)]
    assert lines[:5] == [
        "version: '1.15'",
        "path: ???",
        "width: ${encoder.values}",
        "rate: 0.001",
        "cameras: [overhead, wrist_left]",
    ]
    assert lines[-5:] == [
        "encoder:",
        "  values: true",
        "  encoding:",
        "    _target_: stringline.Rope",
        "    theta: null",
    ]
    assert "- {task: kuka_pick, options: {dim_light: 1.0}}" in lines
    assert "- [0.3, 0.4]" in lines
