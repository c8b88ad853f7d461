"""Tasks: the objects on the table, their initial distribution and the success criterion."""
