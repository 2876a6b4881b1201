//! Verdicts: what the results of a case say about its forms.

use std::collections::BTreeMap;

use crate::{
    case::Case,
    children::Outcome,
    compare::{Tolerance, compare},
    driver::RunError,
};

/// The verdict on a form in a case.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub form: String,
    pub tolerance: Tolerance,
    pub rows: usize,
    /// Maximum distance between two numbers, in units in the last place.
    pub ulp_max: u64,
    /// Number of NaN results with other bits than expected.
    pub payloads: usize,
    /// Number of results outside the tolerance.
    pub mismatches: usize,
    /// Describes the first of those.
    pub first: Option<String>,
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct CaseVerdict {
    pub name: String,
    /// Verdicts on the forms; empty if there were no results.
    pub forms: Vec<Verdict>,
    /// The reason if there were no results, or not the expected status.
    pub failure: Option<String>,
    /// True if the driver refused the text.
    pub is_refused: bool,
}

impl CaseVerdict {
    pub fn passed(&self) -> bool {
        self.failure.is_none() && self.forms.iter().all(|form| form.mismatches == 0)
    }
}

/// Judges the outcome of a case.
pub fn judge(case: &Case, outcome: &Outcome) -> CaseVerdict {
    let mut verdict = CaseVerdict { name: case.name.clone(), forms: Vec::new(), failure: None, is_refused: false };
    match outcome {
        Outcome::Ran(_) if case.status != 0 => {
            verdict.failure = Some(format!("ended without status {}", case.status));
        }
        Outcome::Ran(words) => verdict.forms = verdicts(case, words),
        Outcome::Failed(RunError::Run(status)) if *status == case.status => verdict.forms = verdicts(case, &[]),
        Outcome::Failed(error) => {
            verdict.is_refused = matches!(error, RunError::Load(_));
            verdict.failure = Some(error.to_string());
        }
        Outcome::Lost(what) => verdict.failure = Some((*what).to_owned()),
    }
    verdict
}

/// Compares the words of `out`, if there are any, form by form.
fn verdicts(case: &Case, words: &[u64]) -> Vec<Verdict> {
    let mut order = Vec::new();
    let mut found: BTreeMap<&str, Verdict> = BTreeMap::new();
    for (column, output) in case.outputs.iter().enumerate() {
        let verdict = found.entry(&output.form).or_insert_with(|| {
            order.push(output.form.as_str());
            Verdict {
                form: output.form.clone(),
                tolerance: output.tolerance,
                rows: case.rows.len(),
                ulp_max: 0,
                payloads: 0,
                mismatches: 0,
                first: None,
            }
        });
        for (row, out) in case.rows.iter().zip(words.chunks(case.output_bytes() / 8)) {
            let (expected, got) = (row.expected[column], out[column]);
            let difference = compare(output.kind, output.tolerance, expected, got);
            verdict.payloads += usize::from(difference.payload);
            if difference.ulp != u64::MAX {
                verdict.ulp_max = verdict.ulp_max.max(difference.ulp);
            }
            if difference.too_far {
                verdict.mismatches += 1;
                verdict.first.get_or_insert_with(|| {
                    let inputs: Vec<String> = row.inputs.iter().map(|value| format!("{value:#x}")).collect();
                    format!("of {}: {got:#x}, not {expected:#x}", inputs.join(", "))
                });
            }
        }
    }
    order.iter().map(|form| found[form].clone()).collect()
}
