"""The verbs of `stringline-data`: functions that take a configuration."""
