"""Position encodings of the STRING family: frequencies, bases and one common rotation."""
