//! Case files: reading, writing, and the folder of regressions.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{case::Case, grammar};

/// Folder of programs that once failed, the only cases that are committed as files.
pub const REGRESSIONS: &str = "regressions";

/// Returns the folder of regressions in the checkout in which this was built. It does not exist while there are none.
pub fn regressions() -> PathBuf {
    checkout().join(REGRESSIONS)
}

/// Returns this crate's folder.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Writes a case as `<its name>.ptx` below a folder; returns the path.
pub fn write(case: &Case, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("{}.ptx", case.name));
    let parent = path.parent().context("a case has a name")?;
    fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))?;
    fs::write(&path, case.render()).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}

/// Writes the cases of the grammar and the regressions below a folder; returns the paths.
pub fn write_all(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for case in grammar::cases() {
        paths.push(write(&case, folder)?);
    }
    for regression in list(&regressions())? {
        let below = regression.strip_prefix(checkout()).context("the regressions lie in the checkout")?;
        let path = folder.join(below);
        let parent = path.parent().context("a regression lies in a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))?;
        fs::copy(&regression, &path).with_context(|| format!("failed to copy {}", regression.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Reads a case from its file.
pub fn read(path: &Path) -> anyhow::Result<Case> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    Case::parse(&text).with_context(|| format!("failed to read {}", path.display()))
}

/// Returns all case files below a path, or the path itself, sorted; empty if the path does not exist.
pub fn list(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("failed to list {}", path.display()))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("failed to list {}", path.display()))?.path();
        if path.is_dir() {
            files.extend(list(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
