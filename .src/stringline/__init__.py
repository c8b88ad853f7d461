"""Stringline: a robotics policy stack whose vision knows where every patch stands in space."""

import warnings

# dm_control looks for a screen when it is imported; that there is none is no news for what draws without one.
warnings.filterwarnings("ignore", message=r".*The DISPLAY environment variable is missing")
