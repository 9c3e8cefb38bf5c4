"""The version of this distribution."""

from importlib import metadata

try:
    __version__ = metadata.version("podscope")
except metadata.PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0+source"
