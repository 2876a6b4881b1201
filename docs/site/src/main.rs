//! Builds the documentation site (`docs/`) and fails where a link leads nowhere, a text outgrows its bounds or the search misses a page.
//!
//! `cargo xtask docs` runs it. mdBook renders the pages; this program checks what mdBook does not: links, anchors, the README's
//! length, the width of prose and the search index.

use std::{env, path::Path, process::ExitCode};

use anyhow::Context as _;
use mdbook_driver::MDBook;

mod links;
mod page;
mod prose;
mod search;

fn main() -> anyhow::Result<ExitCode> {
    let root = env::args_os().nth(1).context("missing argument: the folder of the repository")?;
    let root = Path::new(&root);
    let book =
        MDBook::load(root.join("docs")).map_err(|error| anyhow::anyhow!("failed to load the book: {error:#}"))?;
    book.build().map_err(|error| anyhow::anyhow!("failed to build the book: {error:#}"))?;
    let pages = page::all(root)?;
    let mut faults = links::faults(&pages);
    faults.extend(prose::faults(&pages));
    let book = book.build_dir_for("html");
    faults.extend(search::Index::read(&book)?.faults(&root.join(page::SITE), &pages));
    let links: usize = pages.iter().map(|page| page.links.len()).sum();
    println!("{} pages and {links} links checked, {} faults", pages.len(), faults.len());
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
