"""The images of a run: their split, and what a contract takes from them."""

import hashlib
import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

from stringline.datasets.cameras.image_size import Fit
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.labelled_image import LabelledClip, LabelledImage
from stringline.datasets.images.splits import Split, split
from stringline.encoders.perception.byte_pairs import BytePairs
from stringline.encoders.perception.image_contract import Frame, ImageContract
from stringline.encoders.perception.perception_network import LabelledImages

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PerceptionData:
    """Labelled images with their split.

    Attributes:
        images: The store.
        split: Numbers of the images for training and for testing.
        by: What the split keeps apart, such as `room`.
        needs: See `PerceptionNetwork.needs`.
    """

    images: LabelledImages
    split: Split
    by: str
    needs: Collection[str] = ()

    @classmethod
    def of(
        cls,
        store: ImageStore,
        by: str,
        held_out: float | Sequence[str],
        seed: int,
        needs: Collection[str],
    ) -> Self:
        """Splits a store; images without what a network needs are left out and counted.

        Raises:
            ValueError: A side of the split has no image left.
        """
        found = split(store, by=by, held_out=held_out, seed=seed)
        train = [index for index in found.train if _has(store[index], needs)]
        known = {store[index].label for index in train} if "labels" in needs else None
        test = [
            index
            for index in found.test
            if _has(store[index], needs) and (known is None or store[index].label in known)
        ]
        for side, before, after in (("train", found.train, train), ("test", found.test, test)):
            if not after:
                raise ValueError(
                    f"The {side} images are {len(before)}, of which none has {_words(needs)} known "
                    f"in training; allowed: at least one. Choose another split or held_out."
                )
            if left := len(before) - len(after):
                logger.warning(
                    "%d of %d %s images are left out: they lack %s known in training.",
                    left,
                    len(before),
                    side,
                    _words(needs),
                )
        return cls(store, Split(tuple(train), tuple(test)), by, frozenset(needs))

    def contract(self, height: int, width: int, *, fit: Fit, frame: Frame) -> ImageContract:
        """Returns the contract of the images in a size, with names and texts of the training."""
        first = self.images[self.split.train[0]]
        return ImageContract(
            height=height,
            width=width,
            fit=fit,
            frame=frame,
            depth=first.depth is not None,
            geometry=first.intrinsics is not None,
            frames=len(first.rgb) if isinstance(first, LabelledClip) else 1,
            names=self._names(),
            tokeniser=BytePairs.trained(self._texts()).to_text() if "texts" in self.needs else "",
        )

    def fingerprint(self) -> dict[str, Any]:
        """Returns what decides the training batches, as plain data."""
        digest = hashlib.sha256(json.dumps(list(map(int, self.split.train))).encode())
        return {"images": len(self.images), "training_images": digest.hexdigest()[:16]}

    def described(self) -> dict[str, Any]:
        """Returns the split as plain data."""
        return {"by": self.by}

    def _names(self) -> tuple[str, ...]:
        """Returns the classes, or the names of all objects of the training images."""
        chosen = (self.images[index] for index in self.split.train)
        if "labels" in self.needs:
            return tuple(sorted({str(one.label) for one in chosen}))
        if "names" in self.needs:
            return tuple(sorted({thing.name for one in chosen for thing in _objects(one)}))
        return ()

    def _texts(self) -> list[str]:
        """Returns captions of the training images, and names of their objects."""
        chosen = (self.images[index] for index in self.split.train)
        return [
            text
            for one in chosen
            if isinstance(one, LabelledImage)
            for text in (*one.captions, *(thing.name for thing in one.objects))
        ]


def _objects(labelled: LabelledImage | LabelledClip) -> Sequence[Any]:
    return labelled.objects if isinstance(labelled, LabelledImage) else ()


def _has(labelled: LabelledImage | LabelledClip, needs: Collection[str]) -> bool:
    """Returns whether an image has what a network needs; an image without objects is one."""
    if "labels" in needs:
        return labelled.label is not None
    if "captions" in needs:
        return isinstance(labelled, LabelledImage) and bool(labelled.captions)
    return isinstance(labelled, LabelledImage)


def _words(needs: Collection[str]) -> str:
    if "labels" in needs:
        return "a label"
    return "a caption" if "captions" in needs else "objects"
