"""``millstream demo``: Market Spread from generator to report, with what this package brings."""
