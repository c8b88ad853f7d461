"""Keyposes in a recording and in the summary are those that a training finds."""

import importlib
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.datasets.loading.grasp_recordings import grasp_store

from stringline.datasets.loading.keyposes import Keyposes, episode_keyposes
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.view import main
from stringline.datasets.viewing.keypose_views import POSES, KeyposeEntities, KeyposeSection
from stringline.datasets.viewing.rerun_recording import Recorder
from stringline.datasets.viewing.store_summary import summarise, write_summary

DEFAULTS = KeyposeSettings()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """Two grasps, and an episode in which nothing moves."""
    return grasp_store(tmp_path_factory.mktemp("grasps") / "store", (0.02, -0.02), still=1)


@pytest.fixture(scope="module")
def episode(store: EpisodeStore) -> StoredEpisode:
    return store.episodes()[0]


@pytest.fixture(scope="module")
def keyposes(episode: StoredEpisode) -> Keyposes:
    return episode_keyposes(episode, DEFAULTS)


def entities(episode: StoredEpisode, path: Path) -> dict[str, list[Any]]:
    """Returns the chunks of a saved recording by entity."""
    Recorder(episode, cloud_hz=1.0, events=DEFAULTS).save(path)
    found = defaultdict(list)
    reader = importlib.import_module("rerun.chunk").RrdReader(str(path))
    for chunk in reader.store().stream().to_chunks():
        found[chunk.entity_path].append(chunk.to_record_batch())
    return found


@pytest.fixture(scope="module")
def chunks(
    episode: StoredEpisode, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    return entities(episode, tmp_path_factory.mktemp("recording") / "episode.rrd")


def column(batches: list[Any], name: str) -> list[Any]:
    """Returns the rows of a column."""
    return [
        value
        for batch in batches
        if name in batch.schema.names
        for value in batch[name].to_pylist()
    ]


@pytest.mark.slow
def test_each_event_has_its_four_poses(keyposes: Keyposes, chunks: dict[str, list[Any]]) -> None:
    assert len(keyposes) == 2
    for row, words in enumerate(("left closes", "left opens")):
        path = f"/world/keyposes/{row + 1}_left"
        (labels,) = column(chunks[path], "Points3D:labels")
        assert labels == ["corner", "approach", f"{row + 1} {words}", "departure"]
        poses = [getattr(keyposes, kind)[row, 0] for kind in POSES]
        (points,) = column(chunks[path], "Points3D:positions")
        np.testing.assert_allclose(points, [pose[:3, 3] for pose in poses], atol=1e-6)
        for kind, pose in zip(POSES, poses, strict=True):
            (place,) = column(chunks[f"{path}/{kind}"], "Transform3D:translation")
            np.testing.assert_allclose(np.reshape(place, 3), pose[:3, 3], atol=1e-6)
            (turn,) = column(chunks[f"{path}/{kind}"], "Transform3D:mat3x3")
            np.testing.assert_allclose(np.reshape(turn, (3, 3)).T, pose[:3, :3], atol=1e-6)
    assert "/world/keyposes/1_right" not in chunks, "only arms that act"


@pytest.mark.slow
def test_events_are_marked_on_the_timeline(
    keyposes: Keyposes, chunks: dict[str, list[Any]]
) -> None:
    texts = {
        int(step): text
        for batch in chunks["/keyposes"]
        for step, (text,) in zip(
            batch["step"].to_pylist(), batch["TextLog:text"].to_pylist(), strict=True
        )
    }
    assert list(texts) == keyposes.start.tolist()
    assert texts[int(keyposes.start[0])] == "1: left closes (left 1.00 to 0.30)"
    following = {
        int(step): places
        for batch in chunks["/world/next_keypose"]
        for step, places in zip(
            batch["step"].to_pylist(), batch["Points3D:positions"].to_pylist(), strict=True
        )
    }
    assert sorted(following) == [0, *keyposes.end.tolist()]
    assert [len(following[step]) for step in sorted(following)] == [1, 1, 0]
    np.testing.assert_allclose(following[0][0], keyposes.pose[0, 0, :3, 3], atol=1e-6)


@pytest.mark.slow
def test_an_episode_without_keyposes_is_shown_with_the_reason(
    store: EpisodeStore, tmp_path: Path
) -> None:
    found = entities(store.episodes()[2], tmp_path / "still.rrd")
    ((text,),) = column(found["/keyposes"], "TextLog:text")
    assert text.startswith("No keyposes. Episode ")
    assert not [path for path in found if path.startswith("/world/keyposes")]
    assert "/world/grippers/left" in found


@pytest.mark.slow
def test_the_command_tells_the_keyposes(
    store: EpisodeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save = [f"store={store.path}", f"save={tmp_path / 'a.rrd'}", "cloud_hz=1"]
    for options, answer in (
        ([], "2 keyposes: left closes at 1.38 s, left opens at"),
        (["events={stroke: 0.9, stops: never}"], "No keyposes. Episode"),
        (["keyposes=false"], "Open it on a machine"),
    ):
        monkeypatch.setattr(sys, "argv", ["stringline-view", *save, *options])
        main()
        output = capsys.readouterr().out
        assert answer in output
        assert ("keyposes" in output.lower()) == (options != ["keyposes=false"])
    monkeypatch.setattr(sys, "argv", ["stringline-view", *save, "events={strok: 0.9}"])
    with pytest.raises(SystemExit):
        main()
    assert "Did you mean 'stroke'" in capsys.readouterr().err


def test_the_section_counts_draws_and_names(store: EpisodeStore, keyposes: Keyposes) -> None:
    section = KeyposeSection.of(store.episodes(), DEFAULTS)
    assert section.sequences == [("left closes, left opens", 2)]
    assert [name for name, _ in section.without] == store.names()[2:]
    assert section.shown == store.names()[0]
    assert [caption for _, caption in section.images] == ["left closes, 1.4 s", "left opens, 3.8 s"]
    root = ElementTree.fromstring(section.drawing)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    circles = root.findall("circle")
    assert [mark.attrib["fill"] == "none" for mark in circles] == [False, True] * 2
    for mark in circles:
        assert 0 < float(mark.attrib["cx"]) < width
        assert 0 < float(mark.attrib["cy"]) < height
    first, second = ((float(mark.attrib["cx"]), float(mark.attrib["cy"])) for mark in circles[:2])
    shift = 400.0 * (keyposes.pose[1, 0, :2, 3] - keyposes.pose[0, 0, :2, 3])
    assert np.subtract(second, first) == pytest.approx([shift[0], -shift[1]], abs=0.2)


def test_the_page_shows_the_section(store: EpisodeStore, tmp_path: Path) -> None:
    write_summary(tmp_path / "page.html", summarise(store))
    page = (tmp_path / "page.html").read_text()
    assert "Episodes without keyposes: 1 of 3" in page
    assert page.count("<figcaption>1: left closes, 1.4 s") == 1
    assert store.names()[2] in page


def test_an_unknown_robot_has_no_keyposes_and_the_reason(six_episodes: EpisodeStore) -> None:
    section = KeyposeSection.of(six_episodes.episodes(), DEFAULTS)
    assert len(section.without) == 6
    assert section.sequences == ()
    assert "kinematics" in KeyposeEntities.of(six_episodes.episodes()[0], DEFAULTS).sentence
