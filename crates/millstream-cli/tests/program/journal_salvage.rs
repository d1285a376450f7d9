//! `millstream journal copy --salvage`: what is sound of a journal that cannot be opened keeps its numbers and times.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::journal::{fresh, numbers};
use super::process::{millstream, printed, stderr, text};

fn lines(path: &str) -> Vec<String> {
    let all = printed(&millstream(&["journal", "export", path]));
    all.lines().map(str::to_owned).collect()
}

fn segments(path: &str) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|file| file.unwrap().path());
    let is_segment = |path: &std::path::PathBuf| text(path).contains("/segment-");
    let mut found: Vec<_> = files.filter(is_segment).collect();
    found.sort();
    found
}

fn identity(path: &str) -> Vec<u8> {
    // Magic and lineage; what follows is the directory's own.
    fs::read(Path::new(path).join("identity")).unwrap()[..24].to_vec()
}

fn salvaged(path: &str, target: &str) -> Value {
    let said = printed(&millstream(&[
        "journal",
        "copy",
        "--salvage",
        path,
        target,
        "--json",
    ]));
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_sound_journal_is_salvaged_as_it_is() {
    let (folder, path) = fresh();
    numbers(&path, 9_000);
    let target = text(&folder.path().join("copy")).to_owned();
    let report = salvaged(&path, &target);
    assert_eq!(report["lost"], Value::Array(Vec::new()));
    assert_eq!(report["parts"][0]["next"], 9_000);
    assert_eq!(
        (lines(&target), identity(&target)),
        (lines(&path), identity(&path))
    );
    let refused = millstream(&["journal", "copy", "--salvage", &path, &target]);
    assert_eq!(
        stderr(&refused),
        format!("millstream journal copy: {target}: a journal exists here already\n")
    );
    let mixed = millstream(&[
        "journal",
        "copy",
        "--salvage",
        &path,
        &target,
        "--from",
        "3",
    ]);
    assert_eq!(mixed.status.code(), Some(2));
}

#[test]
fn what_follows_a_missing_segment_is_in_a_journal_of_its_own() {
    let (folder, path) = fresh();
    numbers(&path, 9_000);
    let before = lines(&path);
    let files = segments(&path);
    assert!(files.len() > 3);
    fs::remove_file(&files[1]).unwrap();
    let refused = millstream(&["journal", "cat", &path]);
    assert_eq!(refused.status.code(), Some(1));
    let target = text(&folder.path().join("copy")).to_owned();
    let report = salvaged(&path, &target);
    let parts = report["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2, "{report}");
    let mut found = Vec::new();
    for part in parts {
        let journal = part["journal"].as_str().unwrap();
        printed(&millstream(&["journal", "verify", journal]));
        assert_eq!(identity(journal), identity(&path));
        found.extend(lines(journal));
    }
    let end = parts[0]["next"].as_u64().unwrap() as usize;
    let begin = parts[1]["first"].as_u64().unwrap() as usize;
    assert_eq!(parts[1]["journal"], format!("{target}.from-{begin}"));
    assert_eq!(found, [&before[..end], &before[begin..]].concat());
    let lost = &report["lost"][0];
    assert_eq!(
        (lost["first_record"].as_u64(), lost["last_record"].as_u64()),
        (Some(end as u64), Some(begin as u64 - 1))
    );
    let shown = text(&folder.path().join("shown")).to_owned();
    let said = printed(&millstream(&[
        "journal",
        "copy",
        "--salvage",
        &path,
        &shown,
    ]));
    let expected = format!("lost, records {end} to {}: ", begin - 1);
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_copy_without_its_identity_is_another_journal_and_says_so() {
    let (folder, path) = fresh();
    numbers(&path, 100);
    let whole = lines(&path);
    fs::remove_file(Path::new(&path).join("identity")).unwrap();
    let target = text(&folder.path().join("copy")).to_owned();
    let said = printed(&millstream(&[
        "journal",
        "copy",
        "--salvage",
        &path,
        &target,
    ]));
    assert!(said.contains("its identity is lost"), "{said}");
    assert_eq!(lines(&target), whole);
}

#[test]
fn a_directory_without_a_sound_record_is_an_error() {
    let (folder, path) = fresh();
    numbers(&path, 100);
    for segment in segments(&path) {
        let length = fs::metadata(&segment).unwrap().len();
        fs::write(&segment, vec![0_u8; length as usize]).unwrap();
    }
    let target = folder.path().join("copy");
    let refused = millstream(&["journal", "copy", "--salvage", &path, text(&target)]);
    assert_eq!(
        stderr(&refused),
        format!("millstream journal copy: {path}: no record is sound\n")
    );
    assert!(!target.exists());
}
