"""Loading: windows of episodes, the order in which they are drawn, prefetching and statistics."""
