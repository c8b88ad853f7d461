"""Corrected episodes in a training: who leads at each window, the shares, the labels of experts."""

from pathlib import Path

import numpy as np
import pytest
from tests.datasets.loading.grasp_recordings import BLIND, grasp_episode, grasp_store

from stringline.datasets.contract.contract import LABELLED_STEPS, LABELS, Array
from stringline.datasets.editing.edit import trim
from stringline.datasets.loading.corrections import correction_weights
from stringline.datasets.loading.mixture import MixedWindows, Source
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.loading.windows import Windows, WindowSettings
from stringline.datasets.store.episode import INTERVENTIONS, EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore

HZ = BLIND.control_hz
STEP, HORIZON = 20, 120


def corrected_store(path: Path, motion: Array | None = None) -> EpisodeStore:
    """A store with one corrected episode: the steps from 50 on are the expert's.

    At one step before it has a label: by default what was executed, or the motion from that step on
    in the grasp of another seed.
    """
    arrays = {k: v for k, v in grasp_episode(0).items() if "overhead" not in k}
    course = arrays["action"] if motion is None else motion
    label = {
        LABELLED_STEPS: np.array([STEP], np.int32),
        LABELS: course[None, STEP : STEP + HORIZON].astype(np.float32),
    }
    store = EpisodeStore.create(path)
    extra = {INTERVENTIONS: [[50, len(arrays["time"])]]}
    attributes = EpisodeAttributes(BLIND, "put_down", 0, True, "policy", "", extra)
    store.write(arrays | label, attributes)
    return store


def test_windows_know_who_leads_also_after_a_trim(tmp_path: Path) -> None:
    corrected = corrected_store(tmp_path / "corrected")
    shown = grasp_store(tmp_path / "shown", (0.02,), blind=True)
    sources = [Source(corrected.path), Source(shown.path)]
    windows = MixedWindows(sources, [corrected, shown], every_step=True, chunk=4)
    until = windows.until_takeover_s
    expected = np.maximum(50 - windows.step, 0) / HZ
    np.testing.assert_allclose(until[windows.source == 0], expected[windows.source == 0])
    assert np.isnan(until[windows.source == 1]).all()
    trim(corrected, corrected.names(), from_s=0.2)
    later = Windows(corrected, every_step=True, chunk=4, labels=True)
    np.testing.assert_allclose(later.until_takeover_s[:10], [*np.arange(40, 30, -1) / HZ])
    assert later.until_takeover_s[STEP - 10] == 0  # The label has moved with the step.


def test_shares_are_those_asked_for() -> None:
    until = np.array([np.nan, np.nan, np.inf, 0.5, 0.1, 0.0, 0.0])
    given = np.array([1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    after = correction_weights(given, until, 0.25, 0.0)
    np.testing.assert_allclose(after, [0.1875, 0.5625, 0, 0, 0, 0.25 / 3, 0.5 / 3])
    led = correction_weights(given, until, 0.25, 0.2)
    np.testing.assert_allclose(led, [0.1875, 0.5625, 0, 0, 0.0625, 0.0625, 0.125])
    np.testing.assert_array_equal(correction_weights(given, until, None, 0.0), given)
    assert correction_weights(given, until, 1.0, 0.0).sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no episode has a part in which somebody took over"):
        correction_weights(given[:3], until[:3], 0.5, 0.0)
    with pytest.raises(ValueError, match="no demonstrations for the other 50 %"):
        correction_weights(given[2:], until[2:], 0.5, 0.0)


@pytest.mark.parametrize("events", [None, KeyposeSettings()])
def test_a_label_is_the_target_of_its_window_alone(
    tmp_path: Path, events: KeyposeSettings | None
) -> None:
    """A label equal to what was executed changes nothing; another one replaces the targets."""
    same = corrected_store(tmp_path / "same")
    course = grasp_episode(1)["action"]
    other = corrected_store(tmp_path / "other", motion=course)
    settings = WindowSettings(every_step=True, chunk=16, events=events)
    plain = Windows(same, settings)
    window = int(np.flatnonzero(plain.step == STEP)[0])
    executed = plain[window]
    assert plain.until_takeover_s[window] > 0
    for store, labelled in ((same, executed), (other, None)):
        windows = Windows(store, settings, labels=True)
        assert windows.until_takeover_s[window] == 0
        found = windows[window]
        for key in found:
            if labelled is not None:
                np.testing.assert_allclose(found[key], labelled[key], atol=1e-6, err_msg=key)
        rest = np.delete(np.arange(len(plain)), window)
        for key, value in windows.batch(rest).items():
            np.testing.assert_array_equal(value, plain.batch(rest)[key], err_msg=key)
    np.testing.assert_array_equal(found["action"], course[STEP : STEP + 16])
    if events:
        grasp = Windows(grasp_store(tmp_path / "b", (0.02, 0.02), blind=True), settings)
        second = int(np.flatnonzero((grasp.step == STEP) & (grasp.episode == 1))[0])
        for key in ("keypose/pose", "keypose/acting", "keypose/after"):
            np.testing.assert_allclose(found[key], grasp[second][key], atol=1e-5, err_msg=key)


def test_labels_are_checked(tmp_path: Path) -> None:
    arrays = {k: v for k, v in grasp_episode(0).items() if "overhead" not in k}
    store = EpisodeStore.create(tmp_path)
    motion = np.zeros((2, 5, 14), np.float32)
    for steps, given, message in (
        ([3, 3], motion, "expert/step is .*allowed: rising steps"),
        ([3, 900], motion, "expert/step is .*allowed: rising steps"),
        ([3, 4], motion[..., :3], "expert/action has shape"),
        ([3, 4], motion.astype(np.float64), "expert/action has type float64"),
    ):
        label = {LABELLED_STEPS: np.array(steps, np.int32), LABELS: given}
        with pytest.raises(ValueError, match=message):
            store.write(arrays | label, EpisodeAttributes(BLIND, "put_down", 0))
