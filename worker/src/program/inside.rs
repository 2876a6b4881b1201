//! Tells whether paths stay inside the folder of a program's files.

use std::path::{Component, Path};

/// Returns whether a path that is followed from a folder stays inside the folder of files. `from` is relative to the folder of files. The
/// answer does not consider links on the way, which Landlock confines.
pub(super) fn stays_inside(from: &Path, path: &Path) -> bool {
    let mut depth = from.components().filter(|component| matches!(component, Component::Normal(_))).count();
    for component in path.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_go_up_as_far_as_the_folder_of_files() {
        let inside = |from: &str, path: &str| stays_inside(Path::new(from), Path::new(path));
        assert!(inside("", "a/b") && inside("", "./a") && inside("a/b", "../../c") && inside("", "a/.."));
        assert!(!inside("", "..") && !inside("", "/a") && !inside("a/b", "../../../c") && !inside("", "a/../../a"));
    }
}
