"""Deployment of a policy or of leader arms under an operator's supervision."""
