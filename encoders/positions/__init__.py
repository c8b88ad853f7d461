"""Position encodings of the STRING family: frequencies, a basis, and one rotation for all of them."""
