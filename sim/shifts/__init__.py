"""Distribution shifts: ways in which an episode differs from the demonstrations."""
