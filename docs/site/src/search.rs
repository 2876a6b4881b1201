//! The site's search index: whether it finds every page by its title and every environment variable by its name.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::Context as _;
use serde_json::Value;

use crate::page::Page;

const VARIABLE: &str = "GPUFLEET_";
/// The index holds stems of words: "blob" for "blobs", "cap" for "capability".
const ENDING_MAX: usize = 7;

/// What mdBook wrote for the browser.
#[derive(Debug)]
pub struct Index {
    urls: Vec<String>,
    index: Value,
}

impl Index {
    /// `book` is the folder of the built site.
    pub fn read(book: &Path) -> anyhow::Result<Self> {
        let names = fs::read_dir(book)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names = names.filter(|name| name.starts_with("searchindex") && name.ends_with(".js"));
        let file = book.join(names.next().context("the book has no search index")?);
        Self::parse(&fs::read_to_string(file)?)
    }

    fn parse(script: &str) -> anyhow::Result<Self> {
        let (_, text) = script.split_once("JSON.parse('").context("the search index is no JSON in a script")?;
        let (text, _) = text.rsplit_once("'))").context("the search index does not end")?;
        let mut index: Value = serde_json::from_str(&text.replace("\\'", "'").replace("\\\\", "\\"))?;
        let urls = serde_json::from_value(index["doc_urls"].take())?;
        Ok(Self { urls, index: index["index"].take() })
    }

    /// What is not found, of the pages below `site`.
    pub fn faults(&self, site: &Path, pages: &[Page]) -> Vec<String> {
        let of_site = pages.iter().filter_map(|page| Some((page, page.path.strip_prefix(site).ok()?)));
        let of_site = of_site.filter(|(_, path)| *path != Path::new("SUMMARY.md"));
        let faults = of_site.flat_map(|(page, path)| {
            let url = path.with_extension("html").to_string_lossy().into_owned();
            let title = (!self.has_title(&url, &page.title))
                .then(|| format!("the search does not find this page by its title \"{}\"", page.title));
            let words = variables(&page.text).into_iter().filter(|word| !self.has_word(word));
            let words = words.map(|word| format!("the search does not find {word}"));
            let path = page.path.display().to_string();
            title.into_iter().chain(words).map(move |fault| format!("{path}: {fault}"))
        });
        faults.collect()
    }

    fn has_title(&self, url: &str, title: &str) -> bool {
        let anchored = format!("{url}#");
        let documents = self.urls.iter().enumerate().filter(|(_, document)| document.starts_with(&anchored));
        let mut titles = documents.map(|(id, _)| &self.index["documentStore"]["docs"][id.to_string()]["title"]);
        titles.any(|found| found == title)
    }

    /// Follows the word's letters through the index's tree. The browser finds words by their beginnings.
    fn has_word(&self, word: &str) -> bool {
        let mut node = &self.index["index"]["body"]["root"];
        let word = word.to_lowercase();
        let known = word.chars().take_while(|letter| {
            node = &node[letter.to_string()];
            node.is_object()
        });
        known.count() + ENDING_MAX >= word.len()
    }
}

fn variables(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.len() > VARIABLE.len() && word.starts_with(VARIABLE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_or_a_variable_that_the_index_lacks_is_a_fault() {
        let script = r#"window.search = Object.assign(window.search, JSON.parse('{"doc_urls":["a.html#anna\'s"],"index":{
            "documentStore":{"docs":{"0":{"title":"Anna\'s"}}},"index":{"body":{"root":{"g":{"p":{"u":{"f":{"l":{"e":{"e":{"t":{"_":{
            "x":{"y":{"docs":{}}}}}}}}}}}}}}}}}'));"#;
        let index = Index::parse(script).unwrap();
        let site = Path::new("docs/src");
        let page = |name: &str, text: &str| Page::parse(site.join(name), text.to_owned());
        assert_eq!(index.faults(site, &[page("a.md", "# Anna's\n\n`GPUFLEET_XY`")]), [] as [&str; 0]);
        let faults =
            index.faults(site, &[page("a.md", "# Anne's\n"), page("b.md", "# Anna's\n\n`GPUFLEET_ANOTHER_VARIABLE`")]);
        assert_eq!(faults.len(), 3, "{faults:#?}");
        assert_eq!(faults[0], "docs/src/a.md: the search does not find this page by its title \"Anne's\"");
        assert_eq!(faults[2], "docs/src/b.md: the search does not find GPUFLEET_ANOTHER_VARIABLE");
    }
}
