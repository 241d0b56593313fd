"""What a version of a model is."""

from __future__ import annotations

import hashlib
import json

from pydantic import Field

from coding_framework.types import Config


class VersionSpec(Config):
    """What a version is. It never changes; its digest says which it is."""

    model: str = Field(min_length=1)
    """Name under which its backend serves it."""
    backend: str = ""
    """Name of its backend. Default: the first of `serve.yaml`."""
    adapter: str = ""
    """Folder of an adapter. Default: the bare model."""
    prompts: str = "v3"
    """Version of the prompts."""
    temperature: float | None = Field(default=None, ge=0.0)
    """Temperature of its answers. Default: the backend's."""
    max_new_tokens: int | None = Field(default=None, gt=0)
    """Tokens an answer at most. Default: the backend's."""
    weights_sha256: str = ""
    """Digest of the weights, where it is known."""

    @property
    def digest(self) -> str:
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()
