//! The pages that are generated from the code. They are committed, so that they can be read without a build; a check compares them.

use std::{fs, path::Path};

use anyhow::Context as _;
use clap::Command;

mod catalog;
mod cli;
mod environment;
mod exit_codes;
mod failure_codes;
mod json_schema;
mod json_shapes;
mod markdown;

const FOLDER: &str = "docs/src/reference";
/// The first line of every generated page.
const MARK: &str = "<!-- Generated from the code by `cargo xtask docs --write`: edit the code, not this page. -->\n\n";

/// A file of the reference as the code says it should be.
struct Generated {
    name: &'static str,
    text: String,
}

/// Writes every generated file that differs, and tells which.
pub fn write(root: &Path) -> anyhow::Result<Vec<String>> {
    write_to(&root.join(FOLDER), generate(root)?)
}

/// Generated files that differ from the code, and variables that the page of variables lacks.
pub fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = stale(&root.join(FOLDER), &generate(root)?);
    faults.extend(environment::faults(root)?);
    Ok(faults)
}

/// The command lines of gpufleet's programs.
fn programs() -> [Command; 4] {
    [
        gpufleet_cli::command(),
        gpufleet_worker::command::command(),
        gpufleet_ledger::command::command(),
        gpufleet_console::command(),
    ]
}

fn generate(root: &Path) -> anyhow::Result<Vec<Generated>> {
    let page = |name, text: String| Generated { name, text: format!("{MARK}{text}") };
    let mut all = vec![
        page("catalog.md", catalog::page()),
        page("cli.md", cli::page()),
        page("environment.md", environment::page()),
        page("exit-codes.md", exit_codes::page()?),
        page("failure-codes.md", failure_codes::page()),
        page("json-shapes.md", json_shapes::page(root)?),
    ];
    all.push(Generated { name: "openapi.json", text: gpufleet_ledger::api::document() });
    all.extend(json_schema::files().map(|(name, text)| Generated { name, text }));
    Ok(all)
}

fn write_to(folder: &Path, all: Vec<Generated>) -> anyhow::Result<Vec<String>> {
    let mut written = Vec::new();
    for Generated { name, text } in all {
        let path = folder.join(name);
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
            written.push(format!("{FOLDER}/{name}"));
        }
    }
    Ok(written)
}

fn stale(folder: &Path, all: &[Generated]) -> Vec<String> {
    let fault = |Generated { name, text }: &Generated| {
        let committed = fs::read_to_string(folder.join(name)).unwrap_or_default();
        let line = first_difference(&committed, text)?;
        let advice = "run `cargo xtask docs --write` and commit the result";
        Some(format!("{FOLDER}/{name}:{line}: differs from what the code says; {advice}"))
    };
    all.iter().filter_map(fault).collect()
}

fn first_difference(committed: &str, generated: &str) -> Option<usize> {
    if committed == generated {
        return None;
    }
    let same = committed.lines().zip(generated.lines()).take_while(|(a, b)| a == b).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    pub fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn an_edited_page_is_a_fault_until_it_is_written_anew() {
        let (folder, all) = (tempfile::tempdir().unwrap(), || generate(&root()).unwrap());
        let faults = || stale(folder.path(), &all());
        assert_eq!(faults().len(), all().len(), "none is there");
        assert_eq!(write_to(folder.path(), all()).unwrap().len(), all().len());
        assert_eq!(faults(), [] as [String; 0]);

        let page = folder.path().join("cli.md");
        fs::write(&page, fs::read_to_string(&page).unwrap().replace("Submit a job", "Send a job")).unwrap();
        assert!(
            faults().len() == 1 && faults()[0].contains("/cli.md:") && faults()[0].contains("--write"),
            "{:?}",
            faults()
        );
        assert_eq!(write_to(folder.path(), all()).unwrap(), ["docs/src/reference/cli.md"]);
        assert_eq!(faults(), [] as [String; 0]);
    }

    #[test]
    fn the_committed_reference_is_what_the_code_says() {
        assert_eq!(super::faults(&root()).unwrap(), [] as [String; 0]);
    }
}
