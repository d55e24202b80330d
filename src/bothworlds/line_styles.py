"""The colours and dashes of lines in all figures."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's palette: distinguishable with any kind of colour vision. Yellow is left out: too pale for a line.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Line styles beside the colours, so that curves can be distinguished in black and white.
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
    "-.",
    (0, (1, 3)),
)
