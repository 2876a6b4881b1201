//! Tables: the errors of a driver, and which forms are proven.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    compare::Tolerance,
    verdict::{CaseVerdict, Verdict},
};

/// Formats the cases that failed, with reasons.
pub fn failures(verdicts: &[CaseVerdict]) -> String {
    let mut text = String::new();
    for case in verdicts.iter().filter(|case| !case.passed()) {
        if let Some(failure) = &case.failure {
            let _ = writeln!(text, "{}: {failure}", case.name);
        }
        for form in case.forms.iter().filter(|form| form.mismatches > 0) {
            let _ = writeln!(
                text,
                "{}: {} is off in {} of {} rows, by up to {} ulp where {} is allowed: {}",
                case.name,
                form.form,
                form.mismatches,
                form.rows,
                form.ulp_max,
                form.tolerance,
                form.first.as_deref().unwrap_or_default()
            );
        }
    }
    text
}

/// Formats the forms that may differ or did, as a Markdown table.
pub fn differences(driver: &str, verdicts: &[CaseVerdict]) -> String {
    let mut text = format!("Results of {driver}. Forms that are not listed are exact to the bit.\n\n");
    text += "| form | cases | rows | allowed | largest difference, ulp | too far | NaN of other bits |\n";
    text += "| --- | --- | --- | --- | --- | --- | --- |\n";
    let mut forms: BTreeMap<&str, (usize, usize, Verdict)> = BTreeMap::new();
    for form in verdicts.iter().flat_map(|case| &case.forms) {
        let (cases, rows, sum) = forms
            .entry(&form.form)
            .or_insert_with(|| (0, 0, Verdict { ulp_max: 0, payloads: 0, mismatches: 0, ..form.clone() }));
        *cases += 1;
        *rows += form.rows;
        sum.ulp_max = sum.ulp_max.max(form.ulp_max);
        sum.payloads += form.payloads;
        sum.mismatches += form.mismatches;
    }
    for (name, (cases, rows, form)) in forms {
        if form.tolerance == Tolerance::Exact && form.ulp_max == 0 && form.payloads == 0 && form.mismatches == 0 {
            continue;
        }
        let _ = writeln!(
            text,
            "| `{name}` | {cases} | {rows} | {} | {} | {} | {} |",
            form.tolerance, form.ulp_max, form.mismatches, form.payloads
        );
    }
    text
}

/// Counts of a mnemonic's forms, by state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub proven: usize,
    pub failed: usize,
    pub refused: usize,
    /// Forms that the driver loads and no case checks.
    pub unproven: usize,
    /// Forms for a newer architecture than the device's.
    pub skipped: usize,
}

impl Count {
    fn cells(self) -> String {
        let total = self.proven + self.failed + self.refused + self.unproven + self.skipped;
        format!("{total} | {} | {} | {} | {} | {}", self.proven, self.failed, self.refused, self.unproven, self.skipped)
    }

    fn plus(self, other: Count) -> Count {
        Count {
            proven: self.proven + other.proven,
            failed: self.failed + other.failed,
            refused: self.refused + other.refused,
            unproven: self.unproven + other.unproven,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// Formats the counts of all mnemonics, with totals.
pub fn summary(counts: &BTreeMap<String, Count>) -> String {
    let mut text = "| mnemonic | forms | proven | failed | refused | unproven | newer device |\n".to_owned();
    text += "| --- | --- | --- | --- | --- | --- | --- |\n";
    for (mnemonic, count) in counts {
        let _ = writeln!(text, "| {mnemonic} | {} |", count.cells());
    }
    let sum = counts.values().copied().fold(Count::default(), Count::plus);
    let _ = writeln!(text, "| **all** | {} |", sum.cells());
    text
}
