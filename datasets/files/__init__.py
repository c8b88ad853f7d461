"""Files: atomic writes, locks, checksums and directories that are replaced as a whole."""
