//! A page of Markdown: its links, its headings and its lines of prose.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use walkdir::WalkDir;

/// Pages outside the site that readers reach first.
const ROOT_PAGES: [&str; 6] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md", "bench/README.md"];
pub const SITE: &str = "docs/src";
/// Build output and other folders without sources of this repository.
const SKIPPED: [&str; 3] = ["target", ".git", "book"];

#[derive(Debug)]
pub struct Page {
    pub path: PathBuf,
    pub text: String,
    /// Its first heading.
    pub title: String,
    pub links: Vec<Link>,
    /// The names by which links reach its headings.
    pub anchors: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Link {
    pub target: String,
    pub line: usize,
}

impl Page {
    pub fn parse(path: PathBuf, text: String) -> Self {
        let (mut links, mut anchors, mut title) = (Vec::new(), BTreeSet::new(), String::new());
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    links.push(Link { target: dest_url.into_string(), line });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let heading = heading.take().expect("a heading that ends has begun");
                    anchors.insert(anchor(&heading));
                    if title.is_empty() {
                        title = heading;
                    }
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                _ => {}
            }
        }
        Self { path, text, title, links, anchors }
    }
}

/// The name that mdBook and GitHub give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Every page whose links and prose are checked.
pub fn all(root: &Path) -> anyhow::Result<Vec<Page>> {
    let mut paths: Vec<_> = ROOT_PAGES.iter().map(|page| root.join(page)).collect();
    paths.extend(files(&root.join(SITE), "md")?);
    paths.into_iter().map(|path| Ok(Page::parse(path.clone(), read(&path)?))).collect()
}

pub fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

/// The files of this extension in a folder and those below, without the folders that hold no sources.
pub fn files(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        WalkDir::new(folder).into_iter().filter_entry(|entry| !SKIPPED.iter().any(|name| entry.file_name() == *name));
    let paths = entries.map(|entry| Ok(entry?.into_path())).collect::<anyhow::Result<Vec<PathBuf>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_knows_its_links_with_their_lines_and_its_anchors() {
        let page = Page::parse("a.md".into(), "# Exit codes of `x`\n\nSee [b](b.md#c).\n\n![p](p.png)\n".into());
        let links: Vec<_> = page.links.iter().map(|link| (link.target.as_str(), link.line)).collect();
        assert_eq!(links, [("b.md#c", 3), ("p.png", 5)]);
        assert_eq!(page.title, "Exit codes of x");
        assert_eq!(page.anchors.into_iter().collect::<Vec<_>>(), ["exit-codes-of-x"]);
    }
}
