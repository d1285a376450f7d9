"""What is published: the crates on crates.io, each with all that its page needs, and nothing of the rest."""

import json
import re
import subprocess
import sys
import tarfile
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
from packages import ROOT, published

UNPUBLISHED = {"millstream-python", "millstream-sim"}


@pytest.fixture(scope="module")
def packages() -> dict[str, dict[str, Any]]:
    """The metadata of each crate from cargo."""
    command = ["cargo", "metadata", "--no-deps", "--format-version=1", "--offline"]
    found = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    return {package["name"]: package for package in found}


def test_only_the_programs_of_the_repository_are_unpublished(packages: dict[str, dict[str, Any]]) -> None:
    assert {name for name, package in packages.items() if package["publish"] == []} == UNPUBLISHED
    assert set(published()) == set(packages) - UNPUBLISHED


@pytest.mark.parametrize("name", published())
def test_a_published_crate_has_what_its_page_needs(name: str, packages: dict[str, dict[str, Any]]) -> None:
    package = packages[name]
    missing = [key for key in ("description", "license", "repository", "readme") if not package[key]]
    assert not missing
    assert 0 < len(package["keywords"]) <= 5 and package["categories"]
    assert all(re.fullmatch(r"[a-z0-9-]{1,20}", keyword) for keyword in package["keywords"])
    others = [
        one
        for one in package["dependencies"]
        if one["name"].startswith("millstream") and one["kind"] != "dev"
    ]
    assert not [one["name"] for one in others if one["req"] == "*" or one["name"] in UNPUBLISHED]


@pytest.mark.parametrize("name", published())
def test_its_documentation_has_all_that_users_may_turn_on(name: str) -> None:
    manifest = published()[name]
    settings = manifest["package"]["metadata"]["docs"]["rs"]
    assert settings["targets"] == ["x86_64-unknown-linux-gnu"]
    # Not what is for the simulation, nor what builds the same from other sources.
    shown = {
        one
        for one in manifest.get("features", {})
        if one not in ("default", "simulation") and "vendored" not in one
    }
    assert set(settings.get("features", [])) == shown


def test_the_table_of_features_is_that_of_the_manifest() -> None:
    manifest = published()["millstream"]["features"]
    text = (ROOT / "crates" / "millstream" / "src" / "lib.rs").read_text("utf-8")
    rows = re.findall(r"^//! \| (?:`([\w-]+)`)? ?\| (yes|no)? ?\| \[`(\w+)`\] \| ", text, re.MULTILINE)
    default = {feature for feature, on, _ in rows if on == "yes"}
    assert {feature for feature, _, _ in rows if feature} == set(manifest) - {"default"}
    assert default == set(manifest["default"])
    exported = re.findall(
        r"(?:#\[cfg\(feature = \"([\w-]+)\"\)\]\n)?#\[doc\(inline\)\]\npub use \w+ as (\w+);", text
    )
    modules = {module: feature for feature, module in exported}
    assert {module for _, _, module in rows} == set(modules)
    for feature, _, module in rows:
        on = {feature}
        while more := {other for one in on for other in manifest.get(one, []) if other in manifest} - on:
            on |= more
        assert modules[module] in on, feature
    # Where a feature is off, a link leads to the documentation on docs.rs.
    links = re.findall(
        r'cfg_attr\(\s*not\(feature = "([\w-]+)"\),\s*doc = "\[`(\w+)`\]: https://docs.rs/millstream/latest/millstream/(\w+)/"',
        text,
    )
    assert [(module, module) for _, module, _ in links] == [(module, to) for _, module, to in links]
    absent = {module: feature for feature, module, _ in links if module != "prelude"}
    assert absent == {module: feature for module, feature in modules.items() if feature}


@pytest.mark.parametrize("name", published())
def test_a_package_holds_the_sources_and_no_more(name: str) -> None:
    command = ["cargo", "package", "--list", "--allow-dirty", "--offline", "--package", name]
    listed = subprocess.check_output(command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL).splitlines()
    crate = ROOT / "crates" / name
    sources = {str(path.relative_to(crate)) for path in (crate / "src").rglob("*") if path.is_file()}
    assert set(listed) - sources == {
        ".cargo_vcs_info.json",
        "Cargo.lock",
        "Cargo.toml",
        "Cargo.toml.orig",
        "LICENSE",
        "README.md",
    }
    assert sources <= set(listed)
    assert (crate / "LICENSE").samefile(ROOT / "LICENSE")
    # What a source takes in as text is in the package too.
    for source in sources:
        for file in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', (crate / source).read_text("utf-8")):
            assert (crate / source).parent.joinpath(file).resolve().is_relative_to(crate / "src"), file


@pytest.mark.parametrize("name", published())
def test_a_crate_uses_its_dependencies(name: str) -> None:
    crate = ROOT / "crates" / name
    manifest = published()[name]
    code = [path.read_text("utf-8") for path in (crate / "src").rglob("*.rs")]
    text = "\n".join(re.sub(r"^\s*//.*$", "", source, flags=re.MULTILINE) for source in code)
    unused = [
        one
        for one in manifest.get("dependencies", {})
        if not re.search(rf"\b{one.replace('-', '_')}\b", text)
    ]
    assert not unused


def test_the_source_distribution_has_all_that_its_build_reads(tmp_path: Path) -> None:
    maturin = Path(sys.executable).with_name("maturin")
    made = subprocess.run(
        [maturin, "sdist", "--out", tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert made.returncode == 0, made.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    # Cargo reads the manifests of optional dependencies too. The lock is that of these crates and no others.
    command = ["cargo", "metadata", "--offline", "--locked", "--format-version=1"]
    manifest = folder / "crates" / "millstream-python" / "Cargo.toml"
    read = subprocess.run([*command, f"--manifest-path={manifest}"], capture_output=True, text=True)
    assert read.returncode == 0, read.stderr
    crates = {path.name for path in (folder / "crates").iterdir()}
    assert {"millstream-python", "millstream-flow", "millstream-kafka"} <= crates
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    needed = {f"crates/{crate}/src/" for crate in crates} | {"python/millstream/"}
    missing = [
        path
        for path in tracked
        if any(path.startswith(each) for each in needed) and not (folder / path).exists()
    ]
    assert not missing
    about = message_from_string((folder / "PKG-INFO").read_text("utf-8"))
    assert (
        about["Author"] and about["License-Expression"] == "Apache-2.0" and about["License-File"] == "LICENSE"
    )
    labels = {one.split(",")[0] for one in about.get_all("Project-URL", [])}
    assert labels == {"Homepage", "Documentation", "Changelog", "Issues"}
    versions = [one.rpartition(" ")[2] for one in about.get_all("Classifier", []) if " :: 3." in one]
    assert versions[0] == about["Requires-Python"].removeprefix(">=") and len(versions) >= 5
