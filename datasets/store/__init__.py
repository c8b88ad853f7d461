"""The episode store: its layout on disk, episodes, transactions, verification and quality checks."""
