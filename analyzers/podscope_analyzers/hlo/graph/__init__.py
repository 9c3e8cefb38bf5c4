"""The instructions around one of a program, laid out for drawing and as DOT."""
