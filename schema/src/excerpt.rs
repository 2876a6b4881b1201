//! The lines of a program around the one that failed, for readers who don't have the program.

use serde::{Deserialize, Serialize};

use crate::bounds::EXCERPT_BYTES_MAX;

/// Lines of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Excerpt {
    /// The number of the first line, counted from 1.
    pub first_line: u32,
    /// At most seven lines. Long lines are cut.
    pub text: String,
}

/// Number of lines before and after the one that failed.
const CONTEXT_LINES: u32 = 3;
const LINES_MAX: usize = 2 * CONTEXT_LINES as usize + 1;
/// Maximum length of a line. With its line end, each line gets an equal part of the excerpt.
const LINE_BYTES_MAX: usize = EXCERPT_BYTES_MAX / LINES_MAX - 1;
const CUT: &str = "…";

impl Excerpt {
    /// The line with its neighbours. `None` if the program has no such line.
    pub fn around(program: &str, line: u32) -> Option<Self> {
        let first_line = Self::first_line(line);
        let last_line = line.saturating_add(CONTEXT_LINES);
        let lines = program.lines().skip(first_line as usize - 1).take((last_line - first_line) as usize + 1);
        let lines: Vec<String> = lines.map(cut).collect();
        let has_line = line >= first_line && lines.len() > (line - first_line) as usize;
        has_line.then(|| Self { first_line, text: lines.join("\n") })
    }

    /// The first of the lines around this one.
    pub fn first_line(line: u32) -> u32 {
        line.saturating_sub(CONTEXT_LINES).max(1)
    }

    /// Returns the excerpt with its text cut to the bound, for an excerpt from an untrusted message.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.text.truncate(self.text.floor_char_boundary(EXCERPT_BYTES_MAX));
        self
    }

    /// The lines with their numbers.
    pub fn lines(&self) -> impl Iterator<Item = (u32, &str)> {
        (self.first_line..).zip(self.text.lines())
    }
}

fn cut(line: &str) -> String {
    if line.len() <= LINE_BYTES_MAX {
        return line.to_owned();
    }
    format!("{}{CUT}", &line[..line.floor_char_boundary(LINE_BYTES_MAX - CUT.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(lines: u32) -> String {
        (1..=lines).map(|number| format!("line {number}\n")).collect()
    }

    #[test]
    fn an_excerpt_has_the_line_and_its_neighbours() {
        let of = |line| Excerpt::around(&numbered(10), line).map(|excerpt| (excerpt.first_line, excerpt.text));
        let lines = |first: u32, last: u32| (first..=last).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        assert_eq!(of(1), Some((1, lines(1, 4))));
        assert_eq!(of(5), Some((2, lines(2, 8))));
        assert_eq!(of(10), Some((7, lines(7, 10))));
        assert_eq!(of(0), None);
        assert_eq!(of(11), None, "the program ends before");
        assert_eq!(of(u32::MAX), None);
    }

    #[test]
    fn an_excerpt_of_long_lines_keeps_to_its_bound() {
        let line = "ä".repeat(5_000);
        let excerpt = Excerpt::around(&[line.as_str(); 9].join("\n"), 5).unwrap();
        assert_eq!(excerpt.lines().count(), LINES_MAX);
        assert!(excerpt.lines().all(|(_, line)| line.ends_with(CUT)));
        assert!(excerpt.text.len() <= EXCERPT_BYTES_MAX, "{}", excerpt.text.len());
        assert_eq!(excerpt.clone().bounded(), excerpt);
    }

    #[test]
    fn the_lines_of_an_excerpt_have_their_numbers() {
        let excerpt = Excerpt::around(&numbered(3), 2).unwrap();
        assert_eq!(excerpt.lines().collect::<Vec<_>>(), [(1, "line 1"), (2, "line 2"), (3, "line 3")]);
    }
}
