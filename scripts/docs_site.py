"""Hooks of mkdocs: what the site has beside the files of docs/.

The documents of the root folder become pages, README.md the first one. Each package of the source
gets a page of the API reference with its public modules. A link to a file that is no page (source,
results) becomes plain text. mkdocs reports every other link that leads nowhere.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = "coding_framework"
ROOT_PAGES = {
    "README.md": "index.md",
    "TRAINING_GUIDE.md": "TRAINING_GUIDE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
NO_API = {"handle_torch"}
"""The torch that candidates see in the sandbox: it imitates another API."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages of the API to the navigation."""
    pages = [{package: api_page(package)} for package in packages()]
    config.nav = [*(config.nav or ()), {"API": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the documents of the root folder and the pages of the API."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for package, modules in packages().items():
        text = f"# {package}\n\n" + "\n".join(f"::: {module}\n" for module in modules)
        files.append(File.generated(config, api_page(package), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links by the places in the repository become links by the places in the site."""
    here = page.file.src_uri
    sources = {site: source for source, site in ROOT_PAGES.items()}
    source = sources.get(here, f"docs/{here}")

    def linked(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        site = ROOT_PAGES.get(place, place.removeprefix("docs/"))
        if place not in ROOT_PAGES and not place.startswith("docs/"):
            return text
        relative = posixpath.relpath(site, posixpath.dirname(here) or ".")
        return f"{image}[{text}]({relative}{hash_}{anchor})"

    return markdown if here.startswith("api/") else _LINK.sub(linked, markdown)


def packages() -> dict[str, list[str]]:
    """The public modules of each package, by dotted names."""
    found: dict[str, list[str]] = {}
    for init in sorted((ROOT / "src" / PACKAGE).rglob("__init__.py")):
        package = init.parent.relative_to(ROOT / "src")
        if NO_API & set(package.parts):
            continue
        modules = sorted(p.stem for p in init.parent.glob("[a-z]*.py"))
        dotted = ".".join(package.parts)
        if modules:
            found[dotted] = [f"{dotted}.{module}" for module in modules]
    return found


def api_page(package: str) -> str:
    """Where the page of a package lies in the site."""
    return f"api/{package.replace('.', '/')}.md"
