"""The run viewer, `cuda-rl view`: pages that show runs while they go on and after.

    folders -> find_runs -> indexer (a process of its own) -> one SQLite index a run -> pages

A run's files are the truth and are only read; an index lies in the cache folder and can be deleted
at any time. What models and kernels wrote is hostile text: it is escaped by the templates, and the
content policy of every page forbids what an escape might let through.
"""
