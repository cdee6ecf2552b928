"""Measurements of docs/performance.md: ratios from interleaved runs, medians of at least three. Not part of CI, and no timed tests."""
