"""What a version of a model is."""

from __future__ import annotations

import hashlib
import json

from pydantic import Field

from coding_framework.types import Config, PromptVersion


class VersionSpec(Config):
    """What answers: a model of a backend, how it is prompted and how it samples. It never changes;
    its digest says which it is."""

    model: str = Field(min_length=1)
    """The name under which its backend serves it."""
    backend: str = ""
    """Name of its backend. Default: the first of `serve.yaml`."""
    adapter: str = ""
    """Folder of an adapter that the backend loads under the name `model`. Default: none."""
    prompts: PromptVersion = "v3"
    """Version of the prompts."""
    temperature: float | None = Field(default=None, ge=0.0)
    """Temperature of its answers. Default: 0.7."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Tokens an answer at most. Default: what the prompts' version says."""
    weights_sha256: str = ""
    """Digest of the weights; a server that says another one (`cuda-rl serve-policy` says it) does
    not have the model. Default: not compared."""

    @property
    def digest(self) -> str:
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()
