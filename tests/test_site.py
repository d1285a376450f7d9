"""The site: it is built without a warning, and has each document, the reference, search and llms.txt."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from documents import ROOT
from shared import Shared
from test_documents import DOCUMENTS


@pytest.fixture(scope="session")
def site(shared: Shared) -> Path:
    """The site; a dead link or a document without a place in it is an error of the build."""
    return shared.once("site", build)


def build(folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(folder / "site"),
    ]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert built.returncode == 0 and not built.stderr, built.stderr
    return folder / "site"


def test_the_search_finds_recipes_and_names(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"] for entry in index["docs"]}
    assert {"cookbook/counting/#percentiles", "reference/http/#millstream.http.post"} <= found


def test_the_reference_has_every_public_name(site: Path) -> None:
    import millstream

    pages = "".join(page.read_text() for page in (site / "reference").rglob("index.html"))
    anchors = set(re.findall(r'id="millstream\.([\w.]+)"', pages))
    modules = {path.stem for path in (ROOT / "python" / "millstream").glob("[a-z]*.py")} | {
        "objects",
        "postgres",
        "sqlite",
    }
    assert not set(millstream.__all__) - anchors - modules


def test_the_reference_shows_the_options_that_functions_pass_on(site: Path) -> None:
    sinks = (site / "reference" / "postgres" / "index.html").read_text()
    runs = (site / "reference" / "flows" / "index.html").read_text()
    assert "sources pause while an older item waits" in sinks and "**outbox" not in sinks
    assert "the time between two commits" in runs


def test_programs_find_every_page(site: Path) -> None:
    listed = re.findall(r"\]\(https://[^/]+/millstream/([^)]*)\)", (site / "llms.txt").read_text())
    pages = {str(page.parent.relative_to(site)) for page in site.rglob("index.html")}
    assert {address.removesuffix("/") or "." for address in listed} == pages


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text()
        )
        assert not loaded, page


def test_the_site_of_each_version_is_published(tmp_path: Path) -> None:
    """As on two tags: `release/site` in a clone, in which the pages switch between the versions."""
    clone, origin = tmp_path / "clone", tmp_path / "origin"
    clone.mkdir()
    tracked = subprocess.check_output(["git", "ls-files", "-z", "."], cwd=ROOT, text=True)
    for name in tracked.split("\0"):
        if name.startswith(("docs/", "python/", "release/")) or "/" not in name:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy(ROOT / name, clone / name)
    program = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PATH": program}

    def run(*command: str | Path, folder: Path = clone) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("git", "init", "--quiet", "--bare", origin, folder=tmp_path)
    run("git", "init", "--quiet")
    for name, value in {"user.name": "A", "user.email": "a@example.org"}.items():
        run("git", "config", name, value)
    run("git", "remote", "add", "origin", origin)
    run("git", "add", "--all")
    run("git", "commit", "--quiet", "--message", "All")
    run("release/site", "0.1.0")
    # As a checkout of a tag: without the branch.
    run("git", "branch", "--quiet", "-D", "gh-pages")
    run("release/site", "0.2.0")

    def published(path: str) -> str:
        return run("git", "show", f"gh-pages:{path}", folder=origin)

    versions = {one["version"]: one["aliases"] for one in json.loads(published("versions.json"))}
    assert versions == {"0.2.0": ["latest"], "0.1.0": []}
    for version in versions:
        page = published(f"{version}/guide/flows/index.html")
        configuration = re.search(r'id="__config"[^>]*>(.*?)<', page)
        assert configuration is not None
        assert json.loads(configuration[1])["version"]["provider"] == "mike"
        assert f"/millstream/{version}/guide/flows/)" in published(f"{version}/llms.txt")
    assert "latest/" in published("index.html") and published("latest") == "0.2.0"
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "site.yml").read_text("utf-8"))["jobs"].values()
    assert 'release/site "${GITHUB_REF_NAME#v}"' in job["steps"][-1]["run"].splitlines()


def missing(text: str) -> list[str]:
    """Names of the package in a document that the package does not have."""
    import millstream

    def exists(name: str) -> bool:
        found: object = millstream
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        return found is not None

    return [name for name in re.findall(r"\bms(?:\.[A-Za-z_]\w*)+", text) if not exists(name)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_package_exist(document: Path) -> None:
    assert not missing(document.read_text())


def test_a_name_that_does_not_exist_is_found() -> None:
    assert missing("`ms.http.post(...)`, `ms.http.pots` and `ms.flow`") == ["ms.http.pots", "ms.flow"]
