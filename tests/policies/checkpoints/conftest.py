"""Packages outside of Stringline, for checkpoints that name their classes."""

from tests.datasets.extensions.conftest import own_trust, write_module

__all__ = ["own_trust", "write_module"]
