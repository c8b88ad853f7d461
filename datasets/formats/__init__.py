"""Foreign data formats: one module per format with its reader and writer, and what they share."""
