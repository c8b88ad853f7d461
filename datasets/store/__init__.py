"""The episode store: layout on disk, episodes, transactions, verification, quality checks."""
