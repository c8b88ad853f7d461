"""The command `stringline-view`: recordings, clouds, checks, and user errors."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from stringline.datasets.pointclouds.clouds import open3d
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.view import main


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["stringline-view", *arguments])
    main()


@pytest.mark.slow
def test_a_recording_a_cloud_and_a_check(
    store: EpisodeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [
        f"save={tmp_path / 'a.rrd'}",
        f"ply={tmp_path / 'a.ply'}",
        f"proposal={tmp_path / 'a.json'}",
    ]
    check = [
        "check=true",
        "check_steps=[0]",
        "cameras=[overhead,wrist_left]",
        "reference=wrist_left",
    ]
    run(
        monkeypatch,
        f"store={store.path}",
        "episode=hand_over",
        "step=-1",
        "jpeg_quality=50",
        *files,
        *check,
    )
    output = capsys.readouterr().out
    assert (tmp_path / "a.rrd").stat().st_size > 100_000
    assert (
        f"Open it on a machine with a display: rerun --bind 127.0.0.1 {tmp_path / 'a.rrd'}"
        in output
    )
    assert f"{len(open3d().io.read_point_cloud(str(tmp_path / 'a.ply')).points)} points" in output
    proposal = json.loads((tmp_path / "a.json").read_text())
    assert proposal["reference"] == "wrist_left"
    (corrected,) = proposal["cameras"]
    assert corrected["camera"] == "overhead"
    assert corrected["translation_mm"] < 2.0
    assert len(corrected["T_base_camera"]) == 4
    assert "overhead - wrist_left: " in output
    assert "T_base_camera should be" in output


def test_names_from_data_are_shown_in_one_line(
    store: EpisodeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forged = "banana\x1b[31m\r3 episodes imported.0000000007.ab12cd34ef56"
    copied = tmp_path / "copied"
    shutil.copytree(store.path, copied)
    (copied / store.names()[0]).rename(copied / forged)
    run(monkeypatch, f"store={copied}", f"save={tmp_path / 'a.rrd'}", "cloud_hz=0.1", "cameras=[]")
    output = capsys.readouterr().out
    assert "episode banana\\x1b[31m\\r3 episodes imported.0000000007." in output
    assert all(character.isprintable() for line in output.splitlines() for character in line)
    assert not any(line.startswith("3 episodes") for line in output.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            [],
            "There is no display for the viewer. Save a file: save=FILE.rrd. Open it on a machine "
            "with a display: rerun --bind 127.0.0.1 FILE.rrd",
        ),
        (
            ["episode=hand_over_banana.0000000001"],
            "There is no episode 'hand_over_banana.0000000001'. Did you mean 'hand_over_ban",
        ),
        (["cameras=[overheat]"], "There is no camera 'overheat'. Did you mean 'overhead'"),
        (["sav=a.rrd"], "There is no option 'sav'. Did you mean 'save'?"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    store: EpisodeStore,
    arguments: list[str],
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, f"store={store.path}", *arguments)
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert answer in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_missing_extra_is_named(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for library, arguments in (("open3d", ["check=true"]), ("rerun", ["save=a.rrd"])):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, library, None)
            with pytest.raises(SystemExit):
                run(monkeypatch, f"store={store.path}", *arguments)
        assert 'Run: pip install "stringline[view]"' in capsys.readouterr().err
