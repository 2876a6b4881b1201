//! `failure-codes.md`: every code that a failure can have.

use gpufleet_schema::{FailureCode, Verdict};

use super::markdown::{cell, table, wrapped};

pub fn page() -> String {
    let intro = "A failure has a *verdict*, which says whose fault it was, and a *code*, which says what went wrong. Both are in \
                 replies, in `gpufleet show` and in every `-o json`. Programs should match on them and never on the message. \
                 \"Retried\" says whether the fleet runs the job again by itself.";
    let verdicts = Verdict::ALL.iter().map(|verdict| [name(verdict.name()), verdict.meaning().to_owned()]);
    let codes = FailureCode::ALL.iter().map(|code| {
        let about = code.explanation();
        let verdicts: Vec<String> = about.verdicts.iter().map(|verdict| name(verdict.name())).collect();
        let verdicts = if verdicts.is_empty() { "none".to_owned() } else { verdicts.join(", ") };
        [name(code.name()), verdicts, cell(about.retried), cell(about.meaning), cell(about.advice)]
    });
    format!(
        "# Failure codes\n\n{}\n\n## Verdicts\n\n{}\n## Codes\n\n{}",
        wrapped(intro, ""),
        table(["verdict", "meaning"], verdicts),
        table(["code", "verdict", "retried", "meaning", "what to do"], codes)
    )
}

fn name(name: &str) -> String {
    format!("`{name}`")
}
