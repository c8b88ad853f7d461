"""The demonstration of the whole chain, from demonstrations to a report."""
