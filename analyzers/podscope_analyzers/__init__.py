"""Turns XSpaces into columns once, and columns into answers."""
