//! Checksums: for each mnemonic, the number of cases that the grammar makes and a checksum of their texts. The
//! checksums are committed, so that a change of the grammar shows in review although the cases are not.

use std::{fmt::Write as _, path::PathBuf};

use crate::{case::Case, files};

const HEADER: &str = "# mnemonic, number of cases, BLAKE3 of their texts in the order of their names.\n\
                      # `cargo xtask ptx-cases --checksums` writes this file.\n";

/// Returns the path of the committed checksums.
pub fn path() -> PathBuf {
    files::checkout().join("checksums.txt")
}

/// Returns the lines for these cases. The checksum covers inputs, expected results, tolerances and the PTX.
pub fn render(cases: &[Case]) -> String {
    let mut sorted: Vec<&Case> = cases.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut text = HEADER.to_owned();
    for cases in sorted.chunk_by(|a, b| a.mnemonic() == b.mnemonic()) {
        let mut hasher = blake3::Hasher::new();
        for case in cases {
            hasher.update(case.render().as_bytes());
        }
        let _ = writeln!(text, "{} {} {}", cases[0].mnemonic(), cases.len(), hasher.finalize());
    }
    text
}

/// Returns the lines that differ, marked as in a diff; empty if there are none.
pub fn difference(committed: &str, made: &str) -> String {
    let only_in = |text: &str, other: &str, mark: char| {
        let other: Vec<&str> = other.lines().collect();
        text.lines()
            .filter(|line| !other.contains(line))
            .fold(String::new(), |all, line| format!("{all}{mark} {line}\n"))
    };
    only_in(committed, made, '-') + &only_in(made, committed, '+')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar;

    fn some() -> Vec<Case> {
        grammar::recipes().iter().step_by(100).flat_map(|recipe| recipe.cases()).collect()
    }

    #[test]
    fn a_changed_result_changes_the_line_of_its_mnemonic_and_no_other() {
        let made = some();
        let mut changed = made.clone();
        changed[0].rows[0].expected[0] ^= 1;
        let difference = difference(&render(&made), &render(&changed));
        let lines: Vec<&str> = difference.lines().collect();
        let mnemonic = made[0].mnemonic();
        assert_eq!(lines.len(), 2, "{difference}");
        assert!(lines[0].starts_with(&format!("- {mnemonic} ")), "{difference}");
        assert!(lines[1].starts_with(&format!("+ {mnemonic} ")), "{difference}");
    }

    #[test]
    fn the_order_of_cases_does_not_matter() {
        let made = some();
        let reversed: Vec<Case> = made.iter().rev().cloned().collect();
        assert_eq!(render(&made), render(&reversed));
    }

    #[test]
    fn a_case_that_is_gone_is_counted() {
        let made = some();
        assert!(!difference(&render(&made), &render(&made[1..])).is_empty());
    }
}
