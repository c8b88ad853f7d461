"""What `stringline-data` does: one function of a configuration for each verb."""
