"""The scripts of a release: what they refuse, and that CI builds and tries the same packages."""

import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from packages import ROOT

RELEASE = ROOT / "release"


@pytest.fixture
def faults(tmp_path: Path) -> Callable[[str], list[str]]:
    """What `release/check.py` finds in copies of the files, which the test changes."""
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0, first release\n\n- All of it.\n")
    (tmp_path / "README.md").write_text("Version 0.1.0 is on PyPI.\n")
    check = runpy.run_path(str(RELEASE / "check.py"))["faults"]
    return lambda version: check(tmp_path, version)


def test_a_version_that_all_files_name_has_no_faults(faults: Callable[[str], list[str]]) -> None:
    assert faults("0.1.0") == []


def test_each_file_of_another_version_is_named(faults: Callable[[str], list[str]]) -> None:
    named = [fault.split()[0] for fault in faults("0.2.0")]
    assert named == ["Cargo.toml", "Cargo.lock", "CHANGELOG.md"]


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        # A crate that needs another version of a crate of ours.
        ("Cargo.toml", 'millstream-wire", version = "0.1.0"', 'millstream-wire", version = "0.0.9"'),
        (
            "Cargo.lock",
            'name = "millstream-wire"\nversion = "0.1.0"',
            'name = "millstream-wire"\nversion = "1.1.0"',
        ),
        ("CHANGELOG.md", "## 0.1.0", "## Unreleased\n\n## 0.1.0"),
        ("CHANGELOG.md", "- All of it.\n", ""),
        ("README.md", "is on PyPI", "is not on PyPI yet"),
    ],
)
def test_a_version_that_one_file_lacks_is_a_fault(
    file: str, before: str, after: str, faults: Callable[[str], list[str]], tmp_path: Path
) -> None:
    text = (tmp_path / file).read_text("utf-8")
    assert before in text
    (tmp_path / file).write_text(text.replace(before, after), "utf-8")
    (fault,) = faults("0.1.0")
    assert fault.startswith(file)


@pytest.mark.parametrize("words", [[], ["next"], ["0.1"], ["0.1.0", "0.2.0"]])
def test_what_is_no_version_is_bad_usage(words: list[str]) -> None:
    done = subprocess.run([RELEASE / "check.py", *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr.split(":")[0]) == (2, "usage")


def test_the_page_of_the_package_has_links_that_work_elsewhere() -> None:
    absolute = runpy.run_path(str(RELEASE / "tree.py"))["absolute"]
    assert absolute("[a](b/c.md#d)\n```\n[a](b)\n```\n[a](https://x.org) [a](#b) [a](e)\n", "1.2.3") == (
        "[a](https://github.com/millstream/millstream/blob/v1.2.3/b/c.md#d)\n```\n[a](b)\n```\n"
        "[a](https://x.org) [a](#b) [a](https://github.com/millstream/millstream/blob/v1.2.3/e)\n"
    )
    page = absolute((ROOT / "README.md").read_text("utf-8"), "1.2.3")
    code = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    assert not re.findall(r"\]\((?!https://)[^)]*\)", code.sub("", page))


def test_ci_builds_and_tries_the_same_packages() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    script = (RELEASE / "wheels").read_text("utf-8")
    (words,) = re.findall(r"set -- (.*)", script)
    default = subprocess.check_output(["bash", "-c", f"echo {words}"], text=True)
    assert sorted(jobs["wheels"]["strategy"]["matrix"]["target"]) == sorted(default.split())
    about = (ROOT / "pyproject.toml").read_text("utf-8")
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', about)
    assert re.findall(r"^pythons=\((.*)\)", script, re.MULTILINE) == [" ".join(versions)]
    for job in ("try", "try-musl"):
        assert jobs[job]["strategy"]["matrix"]["python"] == versions
    # Scripts that it names exist, and can be run.
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    named = re.findall(r"release/[a-z.]+", "\n".join(steps))
    assert {RELEASE / "check.py", RELEASE / "wheels", RELEASE / "try.py"} <= {ROOT / name for name in named}
    assert all((ROOT / name).stat().st_mode & 0o100 for name in named)
