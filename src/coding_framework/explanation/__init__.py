"""What a verdict means, for people. It explains and decides nothing."""
