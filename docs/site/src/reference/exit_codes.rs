//! `exit-codes.md`: the tables that the programs print under `--help`.

use clap::Command;

use super::{
    markdown::{cell, table, wrapped},
    programs,
};

/// What the table in a program's help begins with.
const HEADING: &str = "Exit codes:";

pub fn page() -> anyhow::Result<String> {
    let intro = "Scripts may rely on these numbers: a number never changes its meaning. `gpufleet submit` derives its exit \
                 code from the job's state and [verdict](failure-codes.md).";
    let mut page = format!("# Exit codes\n\n{}\n", wrapped(intro, ""));
    for program in programs() {
        let rows = rows(&program)?.into_iter().map(|(code, meaning)| [code.to_string(), cell(&meaning)]);
        page.push_str(&format!("\n## `{}`\n\n{}", program.get_name(), table(["code", "meaning"], rows)));
    }
    Ok(page)
}

fn rows(program: &Command) -> anyhow::Result<Vec<(u8, String)>> {
    let help = program.get_after_long_help().or_else(|| program.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let part = help.split_once(HEADING).map(|(_, part)| part.split("\n\n").next().unwrap_or(part));
    let part = part.ok_or_else(|| anyhow::anyhow!("the help of {} has no {HEADING:?}", program.get_name()))?;
    Ok(parse(part))
}

/// A line that does not begin with a number goes on with the one before it.
fn parse(table: &str) -> Vec<(u8, String)> {
    let mut rows: Vec<(u8, String)> = Vec::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let numbered = line.split_once(' ').and_then(|(code, rest)| Some((code.parse().ok()?, rest.trim().to_owned())));
        match (numbered, rows.last_mut()) {
            (Some(row), _) => rows.push(row),
            (None, Some((_, meaning))) => *meaning = format!("{meaning} {line}"),
            (None, None) => {}
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_help_is_read_with_its_long_lines() {
        let rows = parse("\n    0  done\n  130  Ctrl-C; a job\n       goes on\n");
        assert_eq!(rows, [(0, "done".to_owned()), (130, "Ctrl-C; a job goes on".to_owned())]);
    }

    #[test]
    fn every_program_tells_success_wrong_usage_and_an_unreachable_broker() {
        // The console serves without a broker and goes on without one.
        for program in programs().into_iter().filter(|program| program.get_name() != "gpufleet-console") {
            let codes: Vec<u8> = rows(&program).unwrap().into_iter().map(|(code, _)| code).collect();
            for code in [0, 1, 2, 7] {
                assert!(codes.contains(&code), "{} lacks {code}: {codes:?}", program.get_name());
            }
        }
    }
}
