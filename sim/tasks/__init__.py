"""Tasks: what is on the table and what counts as success."""
