"""What names the judging protocol: every verdict carries both."""

PROTOCOL = "1"
"""Raised with every change that can change a verdict; verdicts are shared within one version."""

TOLERANCE_FORMULA = "|out-ref| <= 8*err_torch + 4*eps(accumulation)*sqrt(K)*max(|ref|, S, rms(ref))"
"""Explained in tolerance.py, where it is computed."""
