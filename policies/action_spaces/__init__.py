"""Action spaces: the meaning of the numbers that a policy generates."""
