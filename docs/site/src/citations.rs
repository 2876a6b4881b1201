//! Tests that the pages name as `file::test` must exist: a page is worth what it can show.

use std::{collections::HashSet, path::Path};

use pulldown_cmark::{Event, Options, Parser};

use crate::page::{self, Page};

/// Pages that name tests for what they say.
const CITING: [&str; 4] = ["docs/src/design", "docs/src/operate", "docs/src/stability.md", "tests/README.md"];
/// Shorter names are paths in code, such as `schema::topology`.
const WORDS_MIN: usize = 3;

/// The functions of the repository, each by its file's name and by its folder's.
pub struct Functions(HashSet<(String, String)>);

impl Functions {
    pub fn below(root: &Path) -> anyhow::Result<Self> {
        let mut functions = Self(HashSet::new());
        for path in page::files(root, "rs")? {
            functions.add(&path, &page::read(&path)?);
        }
        Ok(functions)
    }

    fn add(&mut self, path: &Path, text: &str) {
        let places = [path.file_stem(), path.parent().and_then(Path::file_name)];
        for place in places.into_iter().flatten().filter_map(|place| place.to_str()) {
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            self.0.extend(names.map(|name| (place.to_owned(), name.to_owned())));
        }
    }

    fn has(&self, place: &str, name: &str) -> bool {
        self.0.contains(&(place.to_owned(), name.to_owned()))
    }
}

/// Tests that are named and do not exist, each with its place.
pub fn faults(pages: &[Page], functions: &Functions) -> Vec<String> {
    let citing = pages.iter().filter(|page| CITING.iter().any(|place| page.path.to_string_lossy().contains(place)));
    citing.flat_map(|page| page_faults(page, functions)).collect()
}

fn page_faults(page: &Page, functions: &Functions) -> Vec<String> {
    let mut faults = Vec::new();
    for (event, range) in Parser::new_ext(&page.text, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Code(code) = event else { continue };
        let Some((place, name)) = test_name(&code) else { continue };
        if !functions.has(place, name) {
            let line = page.text[..range.start].matches('\n').count() + 1;
            faults.push(format!("{}:{line}: no such test: {code}", page.path.display()));
        }
    }
    faults
}

/// The file and the name, if the code is those of a test.
fn test_name(code: &str) -> Option<(&str, &str)> {
    let (place, name) = code.split_once("::")?;
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (is_name(place) && is_name(name) && name.split('_').count() >= WORDS_MIN).then_some((place, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_named_and_not_there_is_a_fault_with_its_line() {
        let mut functions = Functions(HashSet::new());
        functions.add(Path::new("tests/limits.rs"), "async fn a_job_expires() {}\nfn one_more_of_them() {}");
        let text =
            "`limits::a_job_expires` `tests::one_more_of_them`\n\n| `limits::a_job_is_gone` |\n\n`schema::topology`";
        let page = |path: &str| Page::parse(path.into(), text.into());
        let faults = faults(&[page("docs/src/design/a.md"), page("docs/src/other.md")], &functions);
        assert_eq!(faults, ["docs/src/design/a.md:3: no such test: limits::a_job_is_gone"]);
    }
}
