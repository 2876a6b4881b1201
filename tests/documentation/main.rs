//! Executes every example of the README and of the documentation site: `CONTRIBUTING.md`, "Examples", has the rules.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    env,
    io::{Write as _, stderr},
};

use futures::{StreamExt as _, stream};

mod checked;
mod ground;
mod mark;
mod output;
mod page;
mod parsed;
mod report;
mod run;
mod shell;

use ground::Ground;
use page::Page;
use report::Report;

/// The variable for a text. If it is set, only pages whose path contains the text are executed.
const PAGES_VARIABLE: &str = "DOCUMENTATION_PAGES";
/// The variable for a command that runs this test, such as `cargo xtask emulator-pycuda --session`. Pages whose mark says
/// that this command executes them are executed.
const COMMAND_VARIABLE: &str = "DOCUMENTATION_COMMAND";
/// The number of pages that are executed at once. Most of a page's time is spent waiting for programs to start.
const PAGES_AT_ONCE: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_readme_and_site_does_what_its_page_says() {
    let wanted = env::var(PAGES_VARIABLE).unwrap_or_default();
    let mut pages: Vec<Page> =
        page::all(ground::root()).into_iter().filter(|page| page.path.contains(&wanted)).collect();
    if let Ok(command) = env::var(COMMAND_VARIABLE) {
        pages.iter_mut().for_each(|page| page.execute_for(&command));
    }
    let ground = Ground::new();
    let runs = stream::iter(pages.iter().enumerate()).map(async |(index, page)| (index, run::run(&ground, page).await));
    let mut reports: Vec<(usize, Report)> = runs.buffer_unordered(PAGES_AT_ONCE).collect().await;
    reports.sort_by_key(|(index, _)| *index);
    let mut all = Report::default();
    reports.into_iter().for_each(|(_, report)| all.add(report));
    // `print!` would hide the counts when the test succeeds.
    writeln!(stderr(), "{} pages, {all}", pages.len()).unwrap();
    assert!(all.faults.is_empty(), "{} examples are wrong", all.faults.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_wrong_examples_is_refused_with_line_and_reason() {
    let page = Page::parse("wrong.md", include_str!("wrong.md"));
    let report = run::run(&Ground::new(), &page).await;
    let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    let expected = [
        "wrong.md:5: the output differs from line 9 of the page\n  expected:\n    two\n  got:\n    one\n  command:\n    echo one",
        "wrong.md:15: expected exit code 0, but the command ended with exit code 3; its output:\n    no\n  command:\n    echo no >&2\n    exit 3",
        "wrong.md:24: a `text` block is neither a command nor its output: write",
        "wrong.md:31: the type has no field .arguments",
        "wrong.md:36: no later command of the page uses the file lost.txt",
        "wrong.md:41: the command was to print \"ready\" and go on, but ended with exit code 0; its output:\n    gone",
        "wrong.md:46: expected exit code 7, but the command ended with exit code 0",
        "wrong.md:50: add #[doc = include_str!(\"../../../wrong.md\")] to submitter/client/src/lib.rs",
        "wrong.md:55: the program may wait 2 times for its session, but waited 3 times",
        "wrong.md:60: the output does not say how often the program waited:",
        "wrong.md:65: the block differs from rustfmt.toml: copy the file",
    ];
    assert_eq!(faults.len(), expected.len(), "{report}");
    for (fault, expected) in faults.iter().zip(expected) {
        assert!(fault.starts_with(expected), "{fault}\n\ninstead of\n\n{expected}");
    }
    assert!(report.to_string().contains("        1 needs a GPU\n"), "{report}");
}
