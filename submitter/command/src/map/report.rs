//! Prints what a run has written.

use std::path::Path;

use serde::Serialize;

use crate::{complaint::Complaint, options::Format};

/// The output of `-o json`.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    pub file: &'a Path,
    pub rows: u64,
    pub batches: usize,
    /// Batches of earlier runs.
    pub resumed_batches: usize,
}

impl Report<'_> {
    pub fn print(&self, format: Format) -> Result<(), Complaint> {
        format.print(self, Self::describe)
    }

    fn describe(&self) -> String {
        let Self { file, rows, batches, resumed_batches } = self;
        let resumed = match resumed_batches {
            0 => String::new(),
            some => format!(", {some} of them from an earlier run"),
        };
        let noun = if *batches == 1 { "batch" } else { "batches" };
        format!("{}: {rows} rows in {batches} {noun}{resumed}\n", file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_report_tells_of_resumed_batches() {
        let file = Path::new("out.parquet");
        let one = Report { file, rows: 7, batches: 1, resumed_batches: 0 };
        assert_eq!(one.describe(), "out.parquet: 7 rows in 1 batch\n");
        let mut report = Report { rows: 300, batches: 3, ..one };
        assert_eq!(report.describe(), "out.parquet: 300 rows in 3 batches\n");
        report.resumed_batches = 2;
        assert_eq!(report.describe(), "out.parquet: 300 rows in 3 batches, 2 of them from an earlier run\n");
        json::check(json::MAP, &report);
    }
}
