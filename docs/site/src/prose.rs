//! Bounds on prose: how many words the README has, and how wide a line may be.

use crate::page::Page;

/// A newcomer reads this much before trying.
const README_WORDS_MAX: usize = 500;
/// Fits two files side by side on a common screen.
const COLUMNS_MAX: usize = 120;
/// The READMEs of folders, which may be longer.
const OTHER_READMES: [&str; 2] = ["tests/README.md", "bench/README.md"];

pub fn faults(pages: &[Page]) -> Vec<String> {
    pages.iter().flat_map(|page| wide_lines(page).into_iter().chain(too_long(page))).collect()
}

fn too_long(page: &Page) -> Option<String> {
    let words = prose(&page.text).map(|(_, line)| line.split_whitespace().count()).sum::<usize>();
    let is_other = OTHER_READMES.iter().any(|other| page.path.ends_with(other));
    let is_readme = page.path.ends_with("README.md") && !is_other;
    (is_readme && words > README_WORDS_MAX)
        .then(|| format!("{}: {words} words outside code, at most {README_WORDS_MAX} are allowed", page.path.display()))
}

/// Tables can't be broken into lines, so they may be wider.
fn wide_lines(page: &Page) -> Vec<String> {
    let lines = prose(&page.text).filter(|(_, line)| !line.starts_with('|') && !line.starts_with("> |"));
    let wide = lines.filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
    wide.map(|(number, _)| format!("{}:{number}: more than {COLUMNS_MAX} columns", page.path.display())).collect()
}

/// The lines outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: String) -> Page {
        Page::parse(path.into(), text)
    }

    #[test]
    fn a_readme_with_too_many_words_outside_code_is_a_fault() {
        let words = |count: usize| "word\n".repeat(count);
        assert_eq!(faults(&[page("README.md", words(500))]), [] as [&str; 0]);
        let code = format!("{}```\n{}```\n", words(500), words(100));
        assert_eq!(faults(&[page("README.md", code)]), [] as [&str; 0]);
        assert_eq!(faults(&[page("README.md", words(501))]).len(), 1);
        assert_eq!(faults(&[page("other.md", words(501))]), [] as [&str; 0]);
    }

    #[test]
    fn a_wide_line_of_prose_is_a_fault_and_wide_code_and_tables_are_not() {
        let wide = "x".repeat(121);
        assert_eq!(faults(&[page("a.md", format!("ok\n{wide}\n"))]), ["a.md:2: more than 120 columns"]);
        assert_eq!(faults(&[page("a.md", format!("```\n{wide}\n```\n| {wide} |\n"))]), [] as [&str; 0]);
    }
}
