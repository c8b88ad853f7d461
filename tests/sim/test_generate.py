"""The command `stringline-scenes`: the same bytes for any number of processes."""

import hashlib
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from stringline.datasets.images.image_store import ImageStore
from stringline.sim.collection.stage_clips import StageSettings
from stringline.sim.generate import chosen_assets, generate_images, generate_stages, pair
from stringline.sim.scenes.scene_images import Optics, SceneSettings

SMALL = SceneSettings(optics=Optics(size=(32, 40)), images_per_room=2)


def digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


@pytest.mark.slow
def test_one_and_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    tally = generate_images(SMALL, tmp_path / "one", 7, workers=1)
    generate_images(SMALL, tmp_path / "two", 7, workers=2)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    store = ImageStore(tmp_path / "one")
    assert len(store) == tally.images == 7
    assert store[0].rgb.shape == (32, 40, 3)
    assert store[0].room == store[1].room != store[2].room
    assert store.image(0).captions
    assert "of the objects are partly hidden" in str(tally)


@pytest.mark.slow
def test_one_and_two_processes_write_the_same_clips_of_stages(tmp_path: Path) -> None:
    settings = StageSettings(("kuka_pick", "kuka_bimanual_pick"), image_size=(32, 40))
    tally = generate_stages(settings, tmp_path / "one", 7, workers=1)
    generate_stages(settings, tmp_path / "two", 7, workers=2)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    store = ImageStore(tmp_path / "one")
    assert len(store) == tally.clips == 7
    assert (tally.episodes, tally.failed) == (3, 0)
    assert store.labels()[2:4] == ["kuka pick: success", "kuka bimanual pick: grasped"]
    assert len(set(store.rooms())) == 3


@pytest.mark.slow
def test_failed_episodes_are_counted(tmp_path: Path) -> None:
    settings = StageSettings(("kuka_pick",), image_size=(32, 40), time_limit_s=3.6)
    tally = generate_stages(settings, tmp_path / "stages", 2, workers=1)
    assert (tally.clips, tally.episodes, tally.failed) == (2, 2, 2)
    assert set(ImageStore(tmp_path / "stages").labels()) == {"kuka pick: grasped"}
    hopeless = StageSettings(("kuka_pick",), image_size=(32, 40), time_limit_s=0.1)
    with pytest.raises(ValueError, match="30 episodes in a row had no clip"):
        generate_stages(hopeless, tmp_path / "none", 2, workers=1)
    assert not (tmp_path / "none").exists()


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no kind of rooms 'tabels'. Did you mean 'tabl"):
        SceneSettings(kinds=("tabels",))
    with pytest.raises(ValueError, match="kinds is \\[\\]; allowed: any of living_room"):
        SceneSettings(kinds=())
    with pytest.raises(
        ValueError, match=r"image_size must be an integer from 16 to 1024 \(got 4\)."
    ):
        SceneSettings(optics=Optics(size=(4, 4)))
    with pytest.raises(ValueError, match="fovy_deg is \\[70, 45\\]; allowed: the least number"):
        SceneSettings(optics=Optics(fovy_deg=(70, 45)))
    with pytest.raises(ValueError, match=r"count must be an integer of at least 1 \(got 0\)."):
        generate_images(SMALL, tmp_path / "none", 0)
    with pytest.raises(ValueError, match=r"workers must be an integer of at least 0 \(got -1\)."):
        generate_images(SMALL, tmp_path / "none", 1, workers=-1)
    with pytest.raises(ValueError, match="objects is \\[1, 2, 3\\]; allowed: a number, or the"):
        pair("objects", [1, 2, 3])
    assert not (tmp_path / "none").exists()


def test_furniture_without_pieces_is_refused(tmp_path: Path) -> None:
    config = OmegaConf.create({"furniture": str(tmp_path), "furniture_share": 0.5})
    with pytest.raises(ValueError, match="has no usable pieces; allowed: at least one .glb or"):
        chosen_assets(config)
    with pytest.raises(
        ValueError, match=r"furniture_share must be a number from 0 to 1 \(got 2\)."
    ):
        chosen_assets(OmegaConf.create({"furniture": [], "furniture_share": 2}))
