"""Viewing: rerun recordings of episodes and the HTML summary of a store."""
