"""The library's tests also run where nothing but the library is installed."""

import importlib.util

# What the tools make of a trace of PyTorch's can be asked only where the tools are.
collect_ignore = [] if importlib.util.find_spec("numba") else ["profiler/test_kineto.py"]
