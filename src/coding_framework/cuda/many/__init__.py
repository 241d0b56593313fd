"""Many verdicts at once: pool, workers, caches, builds that were made elsewhere."""
