//! `json-shapes.md`: what the commands print with `-o json`: the fields as their help tells them, and examples from the tests' snapshots.

use std::{fs, path::Path};

use anyhow::Context as _;
use clap::Command;

use super::markdown::{code, wrapped};

/// What the part of a command's help that tells its JSON begins with.
const HEADING: &str = "JSON:";

const SNAPSHOTS: &str = "submitter/command/src";

/// An output that a test of the command compares.
struct Example {
    command: &'static str,
    title: &'static str,
    snapshot: &'static str,
}

const EXAMPLES: [Example; 7] = [
    Example {
        command: "gpufleet submit",
        title: "A job that succeeded",
        snapshot: "submit/snapshots/gpufleet_cli__submit__report__tests__json_of_a_success.snap",
    },
    Example {
        command: "gpufleet submit",
        title: "A job that failed",
        snapshot: "submit/snapshots/gpufleet_cli__submit__report__tests__json_of_a_failure.snap",
    },
    Example {
        command: "gpufleet submit",
        title: "With `--detach`",
        snapshot: "submit/snapshots/gpufleet_cli__submit__report__tests__json_of_a_detached_job.snap",
    },
    Example {
        command: "gpufleet submit",
        title: "An update with `--follow`",
        snapshot: "progress/snapshots/gpufleet_cli__progress__update__tests__json_of_an_update.snap",
    },
    Example {
        command: "gpufleet history",
        title: "A job that failed and one that succeeded",
        snapshot: "history/snapshots/gpufleet_cli__history__tests__json_of_the_history.snap",
    },
    Example {
        command: "gpufleet show",
        title: "A job whose first attempt lost its executor",
        snapshot: "snapshots/gpufleet_cli__show__tests__json_of_a_job.snap",
    },
    Example {
        command: "gpufleet blobs put",
        title: "Three files",
        snapshot: "blobs/snapshots/gpufleet_cli__blobs__tests__stored_arrays_are_listed_with_their_digests-2.snap",
    },
];

pub fn page(root: &Path) -> anyhow::Result<String> {
    let intro = "What the commands print with `--output json`, for programs. Names are stable: later releases add fields and \
                 neither rename nor remove any. The examples are the outputs that gpufleet's tests compare.";
    let mut page = format!("# JSON shapes\n\n{}\n", wrapped(intro, ""));
    let mut program = gpufleet_cli::command();
    program.build();
    for (command, shape) in shapes(&program) {
        page.push_str(&format!("\n## `{command}`\n\n{}", code("text", &shape)));
        for example in EXAMPLES.iter().filter(|example| example.command == command) {
            let text = snapshot(&root.join(SNAPSHOTS).join(example.snapshot))?;
            page.push_str(&format!("\n{}:\n\n{}", example.title, code("json", &text)));
        }
    }
    Ok(page)
}

/// The commands that print JSON, with what their help says of it.
fn shapes(command: &Command) -> Vec<(String, String)> {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let own = help.split("\n\n").find(|part| part.starts_with(HEADING));
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let own = own.map(|part| (name.to_owned(), part.to_owned()));
    own.into_iter().chain(command.get_subcommands().flat_map(shapes)).collect()
}

/// The text of a snapshot without what insta writes in front.
fn snapshot(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let body = text.strip_prefix("---\n").and_then(|text| text.split_once("\n---\n")).map(|(_, body)| body);
    body.map(str::to_owned).with_context(|| format!("{} is not a snapshot", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::tests::root;

    #[test]
    fn every_command_that_tells_its_json_is_on_the_page_and_every_example_is_json() {
        let mut program = gpufleet_cli::command();
        program.build();
        let commands: Vec<String> = shapes(&program).into_iter().map(|(command, _)| command).collect();
        for command in ["submit", "history", "show", "workers", "dead list", "dead show", "blobs put"] {
            assert!(commands.contains(&format!("gpufleet {command}")), "{command}: {commands:?}");
        }
        for example in EXAMPLES {
            assert!(commands.contains(&example.command.to_owned()), "{}", example.command);
            let text = snapshot(&root().join(SNAPSHOTS).join(example.snapshot)).unwrap();
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
    }
}
