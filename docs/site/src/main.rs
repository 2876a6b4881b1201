//! Builds the documentation site (`docs/`) and fails where a link leads nowhere, a text outgrows its bounds, the search misses a page, or a
//! generated page differs from the code.
//!
//! `cargo xtask docs` runs it. mdBook renders the pages; this program checks what mdBook does not: links, anchors, the README's
//! length, the width of prose, names of tests, the reference and the search index. With `--write` it writes the generated pages first, and with
//! `--pictures` the pictures of the catalog.

use std::{env, path::Path, process::ExitCode};

use anyhow::Context as _;
use mdbook_driver::MDBook;

mod citations;
mod links;
mod page;
mod pictures;
mod prose;
mod reference;
mod search;

fn main() -> anyhow::Result<ExitCode> {
    let root = env::args_os().nth(1).context("missing argument: the folder of the repository")?;
    let root = Path::new(&root);
    let is_asked = |option: &str| env::args_os().skip(2).any(|argument| argument == option);
    if is_asked("--pictures") {
        pictures::render(root)?.iter().for_each(|file| println!("wrote {file}"));
    }
    if is_asked("--write") {
        reference::write(root)?.iter().for_each(|file| println!("wrote {file}"));
    }
    let book =
        MDBook::load(root.join("docs")).map_err(|error| anyhow::anyhow!("failed to load the book: {error:#}"))?;
    book.build().map_err(|error| anyhow::anyhow!("failed to build the book: {error:#}"))?;
    let pages = page::all(root)?;
    let mut faults = links::faults(&pages);
    faults.extend(prose::faults(&pages));
    faults.extend(citations::faults(&pages, &citations::Functions::below(root)?));
    faults.extend(reference::faults(root)?);
    let book = book.build_dir_for("html");
    faults.extend(search::Index::read(&book)?.faults(&root.join(page::SITE), &pages));
    let links: usize = pages.iter().map(|page| page.links.len()).sum();
    println!("{} pages and {links} links checked, {} faults", pages.len(), faults.len());
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
