"""Rollouts: one episode of a policy, and the workers that run many of them."""
