"""The command line: parse, call, print. The work is in the rooms below."""

import os

# Before NumPy and SciPy start. Our matrices are small: threads that share one of them wait for one
# another for most of the time, ten times as long as one thread computes where cores are busy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
