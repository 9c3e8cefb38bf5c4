"""``python -m podscope``: the command line."""

from podscope.cli import main

if __name__ == "__main__":
    main()
