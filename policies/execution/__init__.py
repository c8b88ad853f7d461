"""Execution: receding horizon, temporal ensembling and real-time chunking."""
