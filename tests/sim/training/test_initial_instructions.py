"""A run that begins with the weights of another knows the instructions of its own data."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.policies.observation.text_encoder_files import save_text_encoder
from tests.sim.points import MODEL, fill

from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.trainer import Trainer
from stringline.policies.checkpoints.load import load_policy
from stringline.policies.observation.instruction import Instruction, TaskEmbedding, TextEmbedding
from stringline.sim.train import train_policy
from stringline.sim.training.training_settings import Initialisation, TrainingSettings

OLD = ("open the drawer", "put the mug down")
NEW = ("hang the mug", "put the mug down")
WIDTH = 8


def trained(
    folder: Path, texts: tuple[str, ...], instruction: dict[str, Any], **settings: Any
) -> Instruction:
    """Trains on episodes with these instructions; returns the encoder of instructions."""
    store = EpisodeStore.create(folder / "store")
    for number, text in enumerate(texts):
        fill(store, range(10 * number, 10 * number + 3), text)
    encoder = MODEL["observation_encoder"] | {"instruction": instruction}
    # Without a learning rate, so that a run ends with the weights that it began with.
    trainer = Trainer(
        steps=1, batch_size=2, learning_rate=0.0, precision="no", seed=len(folder.name)
    )
    chosen = TrainingSettings(validation_windows=0, **settings)
    train_policy(MODEL | {"observation_encoder": encoder}, store, trainer, folder / "run", chosen)
    found = load_policy(folder / "run" / "checkpoint").observation_encoder.instruction
    assert found is not None
    return found


@pytest.mark.parametrize("new", [NEW, (*NEW, "wipe the table")], ids=len)
@pytest.mark.parametrize("keep_normalisation", [False, True])
def test_a_token_of_a_known_text_is_kept(
    tmp_path: Path, new: tuple[str, ...], keep_normalisation: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stringline")
    kind = {"_target_": "stringline.TaskEmbedding", "_partial_": True}
    first = trained(tmp_path / "first", OLD, kind)
    begun = Initialisation(
        tmp_path / "first" / "run" / "checkpoint", keep_normalisation=keep_normalisation
    )
    second = trained(tmp_path / "second", new, kind, initialisation=begun)
    assert isinstance(first, TaskEmbedding)
    assert isinstance(second, TaskEmbedding)
    assert second.names == tuple(sorted(new))
    same = [[torch.equal(row, other) for other in first.table] for row in second.table]
    assert same == [[text == known for known in first.names] for text in second.names]
    assert "does not know the instructions hang the mug" in caplog.text


@pytest.mark.slow
def test_a_new_text_has_its_own_features(tmp_path: Path) -> None:
    for name in ("encoder", "other"):
        save_text_encoder(tmp_path / name, (*OLD, *NEW), WIDTH)
    kind = {
        "_target_": "stringline.TextEmbedding",
        "_partial_": True,
        "model": str(tmp_path / "encoder"),
        "width": WIDTH,
    }
    trained(tmp_path / "first", OLD, kind)
    begun = Initialisation(tmp_path / "first" / "run" / "checkpoint")
    for name in ("encoder", "other"):
        kind["model"] = str(tmp_path / name)
        second = trained(tmp_path / f"on_{name}", NEW, kind, initialisation=begun)
        assert isinstance(second, TextEmbedding)
        expected = TextEmbedding(dim=32, known=NEW, model=kind["model"], width=WIDTH)
        expected._fill()
        torch.testing.assert_close(second.features, expected.features)
