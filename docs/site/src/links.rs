//! Links that lead nowhere: to a file that does not exist, or to a heading that its page does not have.

use std::path::{Path, PathBuf};

use crate::page::{Link, Page};

/// What is wrong with the links of these pages, each with its place.
pub fn faults(pages: &[Page]) -> Vec<String> {
    let all = pages.iter().flat_map(|page| page.links.iter().map(move |link| (page, link)));
    all.filter_map(|(page, link)| fault(pages, page, link)).collect()
}

fn fault(pages: &[Page], page: &Page, link: &Link) -> Option<String> {
    if link.target.contains("://") || link.target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let target = if file.is_empty() { page.path.clone() } else { beside(&page.path, file) };
    let reason = if !target.exists() {
        "no such file"
    } else if !anchor.is_empty() && !has_anchor(pages, &target, anchor) {
        "no such heading"
    } else {
        return None;
    };
    Some(format!("{}:{}: broken link to {}: {reason}", page.path.display(), link.line, link.target))
}

/// A page that is not among the checked ones is not read for its headings.
fn has_anchor(pages: &[Page], target: &Path, anchor: &str) -> bool {
    let canonical = |path: &Path| path.canonicalize().ok();
    let page = pages.iter().find(|page| canonical(&page.path) == canonical(target));
    page.is_none_or(|page| page.anchors.contains(anchor))
}

fn beside(page: &Path, file: &str) -> PathBuf {
    page.parent().expect("a page lies in a folder").join(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_to_missing_files_and_headings_are_faults_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.md"), folder.path().join("b.md"));
        let text = "[1](b.md) [2](b.md#two) [3](#here) [4](https://example.org)\n\n# Here\n\n[5](c.md) [6](b.md#three) [7](#there)";
        fs::write(&a, text).unwrap();
        fs::write(&b, "# Two").unwrap();
        let pages = [Page::parse(a, text.into()), Page::parse(b, "# Two".into())];
        let faults = faults(&pages);
        assert_eq!(faults.len(), 3, "{faults:#?}");
        assert!(faults[0].ends_with("a.md:5: broken link to c.md: no such file"), "{}", faults[0]);
        assert!(faults[1].ends_with("broken link to b.md#three: no such heading"), "{}", faults[1]);
        assert!(faults[2].ends_with("broken link to #there: no such heading"), "{}", faults[2]);
    }
}
