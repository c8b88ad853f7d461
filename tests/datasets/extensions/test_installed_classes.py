"""Installed packages name their classes by entry points, without being imported."""

from collections.abc import Callable
from pathlib import Path

from stringline.datasets.extensions.trust import installed_classes


def test_entry_points_of_a_kind_are_listed(write_module: Callable[[str, str], Path]) -> None:
    mark = write_module("listed.policies", "class Mine: pass")
    metadata = mark.parent / "path" / "listed-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: listed\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[stringline.policies]\nmine = listed.policies:Mine\n"
        "[stringline.encoders]\nother = listed.encoders:Other\n"
    )
    installed_classes.cache_clear()
    try:
        assert installed_classes("policies")["mine"] == "listed.policies:Mine"
        assert installed_classes("encoders")["other"] == "listed.encoders:Other"
        assert "mine" not in installed_classes("tasks")
    finally:
        installed_classes.cache_clear()
    assert not mark.exists()
