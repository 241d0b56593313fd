"""What each command of `cuda-rl` does; `cli.py` only dispatches to them."""
