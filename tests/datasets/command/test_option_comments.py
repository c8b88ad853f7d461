"""Comments of options are found by their keys."""

from pathlib import Path

from stringline.datasets.command.choices import opening_comment, read_choice

TEXT = """\
# @package _global_
# Bakes bread.
#
#   stringline-bake
# Not more.
defaults: [oven]

loaves: 2 # Number of loaves.
note: "#1 # of all" # A word with a hash.
plain: a#b
oven:   # The block.
  minutes: 40   # Time, min; # is a mark.
  seeds: [poppy, flax] # Names.
  rack: {upper: 1, lower: 2} # Both levels.
  # A line of its own.
  late: ???
steps: # In order.
  - kind: knead
    minutes: 5 # Per loaf.
  - {kind: rest, minutes: 30} # In a warm place.
"""


def test_comments_of_options_blocks_and_items(tmp_path: Path) -> None:
    file = tmp_path / "bake.yaml"
    file.write_text(TEXT)
    found = read_choice(tmp_path, "bake")
    assert found is not None
    assert found.comments == {
        ("loaves",): "Number of loaves.",
        ("note",): "A word with a hash.",
        ("oven",): "The block.",
        ("oven", "minutes"): "Time, min; # is a mark.",
        ("oven", "seeds"): "Names.",
        ("oven", "rack"): "Both levels.",
        ("steps",): "In order.",
        ("steps", "0", "minutes"): "Per loaf.",
        ("steps", "1", "kind"): "In a warm place.",
    }


def test_the_opening_comment_is_the_first_block_without_the_package(tmp_path: Path) -> None:
    file = tmp_path / "bake.yaml"
    file.write_text(TEXT)
    assert opening_comment(file) == "Bakes bread.\n\n  stringline-bake\nNot more."
    file.write_text("loaves: 2\n# Behind.\n")
    assert opening_comment(file) == ""
    file.write_text("# Nothing.\n{}  # The default.\n")
    found = read_choice(tmp_path, "bake")
    assert found is not None
    assert found.comments == {}
