"""Catalogue pieces in place of parametric assets."""

from pathlib import Path

import numpy as np
import pytest

from stringline.sim.scenes.catalogue import FurnitureChoice

pytest.importorskip("trimesh")

# A tetrahedron of the size of a chair; y is up.
CHAIR = "v 0 0 0\nv .5 0 0\nv 0 1 0\nv 0 0 .5\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


@pytest.mark.slow
def test_pieces_replace_assets_of_the_same_noun_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stringline.sim.scenes.catalogue.CACHE", tmp_path / "cache")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "garden_chair.obj").write_text(CHAIR)
    (tmp_path / "models" / "giant_mug.obj").write_text(CHAIR)
    rng = np.random.default_rng(0)
    choice = FurnitureChoice((str(tmp_path / "models"),), share=0.5)
    drawn = [choice("chair", rng).name for _ in range(60)]
    assert 15 < drawn.count("garden chair") < 45
    # A mug of the size of a chair is none.
    assert {choice("mug", rng).name for _ in range(20)} == {"mug"}
    assert FurnitureChoice(()).share == 0.5
    with pytest.raises(
        ValueError, match=r"furniture_share must be a number from 0 to 1 \(got 2\)."
    ):
        FurnitureChoice((), share=2)
