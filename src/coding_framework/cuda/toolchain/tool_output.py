"""What a tool of the driver's or the toolkit's says."""

from __future__ import annotations

import subprocess


def output_of(*command: str, timeout_s: float = 60) -> str:
    """What a command prints; "" where it cannot start, fails, or takes too long."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
