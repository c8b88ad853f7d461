"""Evaluation: seeds, results, suites, stored evaluations and comparisons of policies."""
