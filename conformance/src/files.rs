//! The committed case files: writing them, and telling whether they are what the grammar gives.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{case::Case, recipe::Recipe};

/// Cases that once failed: written by hand or by a random run, and left alone by [`write`].
pub const REGRESSIONS: &str = "regressions";

/// The folder of this checkout.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// Every file that the grammar gives, by its path below the folder.
pub fn texts(recipes: &[Recipe]) -> BTreeMap<PathBuf, String> {
    let kept = recipes.iter().filter_map(Recipe::kept);
    kept.map(|case| (PathBuf::from(format!("{}.ptx", case.name)), case.render())).collect()
}

/// Makes the folder what the grammar gives; answers how many files changed.
pub fn write(recipes: &[Recipe], folder: &Path) -> anyhow::Result<usize> {
    let texts = texts(recipes);
    let changed = stale(recipes, folder)?;
    for path in &changed {
        let full = folder.join(path);
        match texts.get(path) {
            Some(text) => {
                let parent = full.parent().context("a case lies in a folder")?;
                fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
                fs::write(&full, text).with_context(|| format!("write {}", full.display()))?;
            }
            None => fs::remove_file(&full).with_context(|| format!("remove {}", full.display()))?,
        }
    }
    Ok(changed.len())
}

/// Writes a case where it stays.
pub fn keep(case: &Case, path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().context("a case lies in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    fs::write(path, case.render()).with_context(|| format!("write {}", path.display()))
}

/// Writes the cases that have no file of their own into a folder.
pub fn write_hints(recipes: &[Recipe], folder: &Path) -> anyhow::Result<()> {
    for case in recipes.iter().flat_map(Recipe::hints) {
        let path = folder.join(format!("{}.ptx", case.name));
        keep(&case, &path)?;
    }
    Ok(())
}

/// Files that are missing, differ or are left over.
pub fn stale(recipes: &[Recipe], folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let texts = texts(recipes);
    let mut stale: Vec<PathBuf> = texts
        .iter()
        .filter(|(path, text)| fs::read_to_string(folder.join(path)).ok().as_ref() != Some(text))
        .map(|(path, _)| path.clone())
        .collect();
    for path in list(folder)? {
        let below = path.strip_prefix(folder).context("a listed file lies in the folder")?;
        if !texts.contains_key(below) && !below.starts_with(REGRESSIONS) {
            stale.push(below.to_owned());
        }
    }
    Ok(stale)
}

/// All case files below a path, or the path itself, in order.
pub fn list(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("list {}", path.display()))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", path.display()))?.path();
        if path.is_dir() {
            files.extend(list(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
