//! Findings, and how they are shown.

use serde::Serialize;

use super::super::{complaint::Complaint, output};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: String,
    pub status: Status,
    pub found: String,
    /// What to do next. None if nothing has to be done.
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Warning,
    Error,
    /// The check could not be made.
    Skipped,
}

/// All findings.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    pub errors: usize,
    warnings: usize,
    skipped: usize,
    checks: Vec<Finding>,
}

impl Finding {
    fn new(check: impl Into<String>, status: Status, found: impl Into<String>) -> Self {
        Self { check: check.into(), status, found: found.into(), fix: None }
    }

    pub fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, found)
    }

    pub fn warning(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, Status::Warning, found)
    }

    pub fn error(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, Status::Error, found)
    }

    pub fn skipped(check: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(check, Status::Skipped, why)
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// An error from a text that says what failed and, after a semicolon, what to do, as the errors of this workspace do.
    pub fn explained(check: impl Into<String>, text: &str) -> Self {
        match text.split_once("; ") {
            Some((found, fix)) => Self::error(check, found).fix(fix),
            None => Self::error(check, text),
        }
    }

    /// Makes an error a warning, because the fleet serves all the same.
    pub fn weaken(&mut self) {
        self.status = Status::Warning;
    }

    pub fn of_complaint(check: impl Into<String>, complaint: &Complaint) -> Self {
        match &complaint.hint {
            Some(hint) => Self::error(check, complaint.message.clone()).fix(hint.clone()),
            None => Self::explained(check, &complaint.message),
        }
    }
}

impl Status {
    const ALL: [Self; 4] = [Self::Ok, Self::Warning, Self::Error, Self::Skipped];

    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }

    const fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Warning => "1;33",
            Self::Error => "1;31",
            Self::Skipped => "2",
        }
    }
}

impl Diagnosis {
    pub fn new(checks: Vec<Finding>) -> Self {
        let count = |status| checks.iter().filter(|finding| finding.status == status).count();
        Self { errors: count(Status::Error), warnings: count(Status::Warning), skipped: count(Status::Skipped), checks }
    }

    /// One line for each finding, with its fix below it, and the counts at the end.
    pub fn describe(&self) -> String {
        self.render(output::stdout_has_colour())
    }

    fn render(&self, colour: bool) -> String {
        let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
        let status_width = widest(&mut Status::ALL.iter().map(|status| status.word().len()));
        let check_width = widest(&mut self.checks.iter().map(|finding| finding.check.chars().count()));
        let indent = " ".repeat(status_width + 2);
        let mut text = String::new();
        for Finding { check, status, found, fix } in &self.checks {
            let word = format!("{:<status_width$}", status.word());
            let word = if colour { format!("\x1b[{}m{word}\x1b[0m", status.colour()) } else { word };
            text.push_str(&format!("{word}  {check:<check_width$}  {found}\n"));
            if let Some(fix) = fix {
                text.push_str(&format!("{indent}fix: {fix}\n"));
            }
        }
        let Self { errors, warnings, skipped, .. } = self;
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        text.push_str(&format!(
            "\n{errors} error{}, {warnings} warning{}, {skipped} skipped\n",
            plural(*errors),
            plural(*warnings)
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{exit::Exit, json},
        *,
    };

    fn diagnosis() -> Diagnosis {
        Diagnosis::new(vec![
            Finding::ok("broker", "RabbitMQ 3.10.8"),
            Finding::explained("login", "wrong password; check it"),
            Finding::warning("pool default", "no worker serves it").fix("start one"),
            Finding::skipped("ledger", "no database is configured"),
        ])
    }

    #[test]
    fn each_finding_is_a_line_with_its_fix_below() {
        insta::assert_snapshot!(diagnosis().render(false), @r"
        ok       broker        RabbitMQ 3.10.8
        error    login         wrong password
                 fix: check it
        warning  pool default  no worker serves it
                 fix: start one
        skipped  ledger        no database is configured

        1 error, 1 warning, 1 skipped
        ");
    }

    #[test]
    fn a_complaint_with_a_hint_keeps_its_whole_message() {
        let complaint = Complaint::new(Exit::Ledger, "first; second").hint("third");
        let finding = Finding::of_complaint("ledger", &complaint);
        assert_eq!((finding.found.as_str(), finding.fix.as_deref()), ("first; second", Some("third")));
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        json::check(json::DOCTOR, &diagnosis());
    }
}
