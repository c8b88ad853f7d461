"""Networks and measures of perception: classification, retrieval, detection and clips."""
