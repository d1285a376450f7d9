"""The snapshots of the public API: what a line is made of, and that a change is seen."""

import os
import subprocess
from pathlib import Path

import public_api
import pytest

SOURCE = """
mod inner {
    pub struct Deep<T>(T);
    impl<T: Clone> Deep<T> {
        pub async fn call<F>(&mut self, f: F) -> T where F: Fn(&[u8]) -> bool { self.0.clone() }
        fn private(&self) {}
    }
    impl<T> std::ops::Deref for Deep<T> { type Target = T; fn deref(&self) -> &T { &self.0 } }
}
pub use inner::Deep;
pub use std::collections::BTreeMap as Map;
pub mod old { pub use crate::Shape; }
#[derive(Clone, Debug)] #[non_exhaustive] pub enum Shape { Dot, Box { w: u8 }, Many(Vec<Shape>, [u8; 4]) }
pub struct Plain { pub a: &'static str, pub b: fn(u8) -> bool }
pub struct Local { pub a: *const u8, c: u8 }
pub trait Verb: Send {
    const N: usize;
    type Out: Iterator<Item = u8> + ?Sized;
    fn one(&self);
    fn two(self) where Self: Sized {}
}
pub type Result<T, E = Box<dyn std::error::Error + Send>> = std::result::Result<T, E>;
pub const LIMIT: u64 = 1 << 4;
pub unsafe fn raw(list: &mut dyn Iterator<Item = u8>) -> ! { loop {} }
"""
LINES = """
impl !Send for tiny::Local
impl !Sync for tiny::Local
impl<T> Deref for Deep<T>
mod tiny
fn tiny::Deep::call<F>(&mut self, f: F) -> T where F: Fn(&[u8]) -> bool  [async]  [impl<T: Clone> Deep<T>]
struct tiny::Deep<T>(_)
const tiny::LIMIT: u64 = _
struct tiny::Local
field tiny::Local::a: *const u8
use tiny::Map = std::collections::BTreeMap
struct tiny::Plain
struct tiny::Plain has public fields only
field tiny::Plain::a: &'static str
field tiny::Plain::b: fn(u8) -> bool
type tiny::Result<T, E = Box<dyn std::error::Error + Send>> = std::result::Result<T, E>
enum tiny::Shape  [non_exhaustive]
derive tiny::Shape: Clone, Debug
variant tiny::Shape::Box { w: u8 }
variant tiny::Shape::Dot
variant tiny::Shape::Many(Vec<Shape>, [u8; 4])
trait tiny::Verb: Send
const tiny::Verb::N: usize
type tiny::Verb::Out: Iterator<Item = u8> + ?Sized
fn tiny::Verb::one(&self)
fn tiny::Verb::two(self) where Self: Sized  [provided]
mod tiny::old
use tiny::old::Shape = tiny::Shape
fn tiny::raw(list: &mut dyn Iterator<Item = u8>) -> !  [unsafe]
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What rustdoc says of a small crate."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.rs").write_text(SOURCE.replace("dyn Iterator<Item = u8>", "dyn Iterator<Item = u8>"))
    document = [
        "rustdoc",
        "tiny.rs",
        "--edition=2024",
        "--output-format=json",
        "-Zunstable-options",
        "-o",
        ".",
    ]
    subprocess.run(
        [*document, "-Awarnings"], cwd=folder, check=True, env=os.environ | {"RUSTC_BOOTSTRAP": "1"}
    )
    return folder


def test_each_public_item_has_a_line(tiny: Path) -> None:
    expected = LINES.strip().splitlines()
    found = public_api.snapshot(tiny / "tiny.json").splitlines()
    assert found == expected


def test_a_change_is_shown_and_then_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "crates" / "tiny").mkdir(parents=True)
    monkeypatch.setattr(public_api, "ROOT", tmp_path)
    monkeypatch.setattr(public_api, "published", lambda: {"tiny": {"features": {"default": ["two", "one"]}}})
    assert public_api.main(tiny, write=True) == 0
    file = tmp_path / "crates" / "tiny" / "api.txt"
    assert file.read_text().startswith("feature default = [one, two]\n")
    assert public_api.main(tiny, write=False) == 0
    capsys.readouterr()
    file.write_text(file.read_text().replace("Local::a: *const", "Local::a: *mut"))
    assert public_api.main(tiny, write=False) == 1
    told = capsys.readouterr()
    assert "-field tiny::Local::a: *mut u8\n+field tiny::Local::a: *const u8" in told.out
    assert "make api" in told.err


def test_a_crate_without_json_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(public_api, "published", lambda: {"millstream-wire": {}})
    assert public_api.main(tmp_path, write=False) == 1
    assert "millstream_wire.json is missing" in capsys.readouterr().err


def test_published_crates_have_a_snapshot() -> None:
    names = public_api.published()
    assert {"millstream", "millstream-journal", "millstream-cli"} <= set(names)
    assert not {"millstream-sim", "millstream-python"} & set(names)
    missing = [name for name in names if not (public_api.ROOT / "crates" / name / "api.txt").exists()]
    assert not missing
