//! The files that come back: those that match the globs of the task.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use gpufleet_schema::host_program::stays_inside;

/// Characters of patterns. A glob without one names a file or a folder.
const SPECIAL: [char; 6] = ['*', '?', '[', ']', '{', '\\'];

/// The globs of a task.
#[derive(Debug)]
pub(super) struct Selection(GlobSet);

impl Selection {
    /// Understands the globs. A glob that names a folder selects everything in it. On failure it returns a sentence for the user.
    pub(super) fn of(globs: &[String]) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            let refuse = |reason: &str| format!("the glob {glob:?} selects nothing to download: {reason}; correct it");
            if !stays_inside(Path::new(""), Path::new(glob)) {
                return Err(refuse("it leaves the folder of the program's files"));
            }
            let mut pattern = glob.trim_end_matches('/');
            while let Some(rest) = pattern.strip_prefix("./") {
                pattern = rest;
            }
            let patterns = match pattern {
                "" | "." => vec!["**".to_owned()],
                name if name.contains(SPECIAL) => vec![name.to_owned()],
                name => vec![name.to_owned(), format!("{name}/**")],
            };
            for pattern in patterns {
                // A star does not match a slash.
                let built = GlobBuilder::new(&pattern).literal_separator(true).build();
                set.add(built.map_err(|error| refuse(&error.kind().to_string()))?);
            }
        }
        set.build().map(Self).map_err(|error| format!("the globs of the download are too complex: {error}; use fewer"))
    }

    /// Returns whether a path, relative to the folder of files, comes back.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, path: &str) -> bool {
        Selection::of(&[glob.to_owned()]).unwrap().has(Path::new(path))
    }

    #[test]
    fn a_star_stays_in_its_folder_and_two_do_not() {
        assert!(matches("out/*", "out/a") && !matches("out/*", "out/a/b") && matches("out/**", "out/a/b"));
        assert!(matches("**/*.txt", "a.txt") && matches("**/*.txt", "a/b/c.txt") && !matches("*.txt", "a/b.txt"));
        assert!(matches("a?.pt", "a1.pt") && !matches("a?.pt", "a/.pt"));
    }

    #[test]
    fn the_name_of_a_folder_selects_all_in_it() {
        assert!(matches("out", "out/a/b") && matches("./out/", "out/a") && matches("out", "out"));
        assert!(!matches("out", "outer") && matches(".", "a/b"));
    }

    #[test]
    fn a_glob_that_leaves_the_folder_or_is_wrong_is_refused_by_its_name() {
        for glob in ["../x", "/etc/*", "a/../../b", "["] {
            let refused = Selection::of(&[glob.to_owned()]).unwrap_err();
            assert!(refused.contains(&format!("{glob:?}")), "{refused}");
        }
    }
}
