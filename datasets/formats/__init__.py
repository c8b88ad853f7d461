"""Other people's data sets: one file per format that is read, one per format that is written, and what they share."""
