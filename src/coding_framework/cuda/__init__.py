"""The judge: safety -> compile -> run -> verdict. Start at `judge.py`."""
