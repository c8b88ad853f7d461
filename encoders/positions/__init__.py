"""Position encodings of the STRING family: frequencies, a basis, and one rotation that serves them all."""
