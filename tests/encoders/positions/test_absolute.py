"""Absolute encodings add an embedding of the place to each token."""

import pytest
import torch

from stringline.encoders.positions.absolute import LearnedEncoding, SinusoidalEncoding


def test_the_sinusoidal_encoding_is_that_of_the_papers() -> None:
    encoding = SinusoidalEncoding(2, 8, 2, theta=10_000.0).double()
    embedded = encoding.prepare(torch.tensor([[[3.0, 5.0]]], dtype=torch.float64)).embed(
        torch.zeros(1, 1, 16)
    )[0, 0]
    omega = 10_000 ** (-torch.arange(4) / 4)
    phase = torch.cat((3 * omega, 5 * omega))
    torch.testing.assert_close(embedded, torch.cat((phase.cos(), phase.sin())))


def test_at_the_centres_of_cells_the_embedding_is_the_entry_of_the_table() -> None:
    encoding = LearnedEncoding(2, 8, 2, cells=(3, 2), low=(0.0, -1.0), high=(3.0, 1.0))
    centres = torch.cartesian_prod(
        torch.tensor([0.5, 1.5, 2.5]), torch.tensor([-0.5, 0.5])
    ).unsqueeze(0)
    embedded = encoding.prepare(centres).embed(torch.zeros(1, 6, 16))
    torch.testing.assert_close(embedded[0], encoding.table.flatten(0, 1))


def test_between_centres_it_is_interpolated_and_outside_it_is_constant() -> None:
    encoding = LearnedEncoding(1, 4, 3, cells=(2, 2, 2), low=(0.0,) * 3, high=(2.0,) * 3)
    where = torch.tensor([[[1.0, 1.0, 1.0], [9.0, 9.0, 9.0], [-9.0, 0.5, 0.5], [0.75, 0.5, 0.5]]])
    embedded = encoding.prepare(where).embed(torch.zeros(1, 4, 4))[0]
    table = encoding.table.detach()
    expected = [
        table.mean(dim=(0, 1, 2)),
        table[1, 1, 1],
        table[0, 0, 0],
        0.75 * table[0, 0, 0] + 0.25 * table[1, 0, 0],
    ]
    torch.testing.assert_close(embedded, torch.stack(expected))


def test_invalid_ranges_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"cells \[3\].*allowed: 2 entries each"):
        LearnedEncoding(2, 8, 2, cells=(3,), low=(0.0, 0.0), high=(1.0, 1.0))
    with pytest.raises(ValueError, match="low below high"):
        LearnedEncoding(2, 8, 1, cells=(3,), low=(1.0,), high=(1.0,))
