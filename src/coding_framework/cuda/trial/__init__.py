"""One candidate tried on one shape set, and the verdict while it is being found."""
