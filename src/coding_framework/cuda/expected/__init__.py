"""What the right answer is: inputs, float64 reference, tolerance."""
