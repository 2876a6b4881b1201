//! The comparison as Markdown, ready for the README and the documentation.

use std::fmt::Write as _;

use super::{
    Column, Report,
    system::{AfterKill, Kill, Measured},
};
use crate::stats::Spread;

pub fn render(report: &Report) -> String {
    let mut text = format!("{}\n", report.machine.line());
    for column in &report.columns {
        let about = match &column.measured {
            Ok(measured) => measured.about.clone(),
            Err(reason) => format!("{}: not measured ({reason})", column.name.title()),
        };
        let _ = writeln!(text, "- {about}");
    }
    let titles = report.columns.iter().map(|column| column.name.title().to_owned());
    let _ = writeln!(text, "\n{}", row("", titles));
    let _ = writeln!(text, "{}", row("---", report.columns.iter().map(|_| "---".to_owned())));
    for (title, cell) in rows(&report.kill) {
        let _ = writeln!(text, "{}", row(&title, report.columns.iter().map(|column| cell_of(column, cell))));
    }
    text
}

type CellOf = fn(&Column, &Measured) -> String;

fn rows(kill: &Kill) -> [(String, CellOf); 6] {
    [
        ("one job at a time, median (p99)".to_owned(), |_, measured| {
            format!("{} ({}) ms", figure(&measured.p50_ms), figure(&measured.p99_ms))
        }),
        ("jobs/s, up to 64 in flight".to_owned(), |_, measured| match &measured.packed_jobs_per_second {
            Some(packed) => format!("{}; packed {}", figure(&measured.jobs_per_second), figure(packed)),
            None => figure(&measured.jobs_per_second),
        }),
        (format!("worker killed, {} jobs: lost / run twice", kill.jobs), |column, measured| {
            let late = match &column.after_kill_late {
                Some(Ok(late)) => format!("; `acks_late` {}", outcome(late)),
                Some(Err(reason)) => format!("; `acks_late` not measured ({reason})"),
                None => String::new(),
            };
            outcome(&measured.after_kill) + &late
        }),
        ("jobs finished after that".to_owned(), |column, measured| {
            let late = column.after_kill_late.iter().flatten().map(|late| format!("; `acks_late` {}", late.finished));
            measured.after_kill.finished.to_string() + &late.collect::<String>()
        }),
        ("jobs listed afterwards".to_owned(), |_, measured| {
            let history = measured.history;
            if history.records == history.of {
                "all".to_owned()
            } else {
                format!("{} of {}", history.records, history.of)
            }
        }),
        ("idle memory".to_owned(), |_, measured| format!("{:.0} MiB", measured.idle_mib)),
    ]
}

fn cell_of(column: &Column, cell: CellOf) -> String {
    column.measured.as_ref().map_or_else(|_| "not measured".to_owned(), |measured| cell(column, measured))
}

fn outcome(after: &AfterKill) -> String {
    format!("{} / {}", after.lost, after.twice)
}

/// The median in as many digits as mean something.
fn figure(spread: &Spread) -> String {
    match spread.median {
        median if median >= 1000.0 => format!("{:.0}", (median / 100.0).round() * 100.0),
        median if median >= 10.0 => format!("{median:.0}"),
        median => format!("{median:.1}"),
    }
}

fn row(title: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells: String = cells.into_iter().map(|cell| format!(" {cell} |")).collect();
    format!("| {title} |{cells}")
}
