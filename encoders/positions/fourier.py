"""The real Fourier transform of circulant blocks: frequencies and basis."""

import math

import torch
from torch import Tensor


def sine_transform(block: int, device: torch.device | None = None) -> Tensor:
    """Returns W (block / 2, block) float64, W_jn = 2 sin(2 pi j n / block), of a circulant block.

    W maps the first column of a block to its frequencies. The first row (j = 0) is zero: it belongs
    to the plane of the constant and the alternating vector, which an antisymmetric circulant matrix
    does not rotate. On the other rows W W^T = 2 block I.
    """
    j, n = (
        torch.arange(count, dtype=torch.float64, device=device) for count in (block // 2, block)
    )
    return 2 * torch.sin(2 * math.pi / block * j[:, None] * n)


def real_fourier(block: int, device: torch.device | None = None) -> Tensor:
    """Returns the real Fourier basis of a block, (block, block) float64, orthogonal.

    Columns j and j + block / 2 span plane j: the normalised cosine and sine of frequency j; for j =
    0 the constant and the alternating vector.
    """
    j, n = (
        torch.arange(count, dtype=torch.float64, device=device) for count in (block // 2, block)
    )
    angle = 2 * math.pi / block * n[:, None] * j
    cosine, sine = (math.sqrt(2 / block) * wave for wave in (angle.cos(), angle.sin()))
    cosine[:, 0] = math.sqrt(1 / block)
    sine[:, 0] = math.sqrt(1 / block) * torch.cos(math.pi * n)
    return torch.cat((cosine, sine), dim=1)
