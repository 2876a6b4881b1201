//! Prints the comparison as Markdown for the README and the documentation.

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

fn rows(kill: &Kill) -> [(String, CellOf); 5] {
    [
        ("one job at a time, median (p99)".to_owned(), |_, measured| {
            format!("{} ({}) ms", figure(&measured.p50_ms), figure(&measured.p99_ms))
        }),
        ("jobs/s, up to 64 in flight".to_owned(), |_, measured| match &measured.packed_jobs_per_second {
            Some(packed) => format!("{}; packed {}", figure(&measured.jobs_per_second), figure(packed)),
            None => figure(&measured.jobs_per_second),
        }),
        (format!("worker killed, {} jobs: finished / lost / run twice", kill.jobs), |column, measured| {
            let late = match &column.after_kill_late {
                Some(Ok(late)) => format!("; `acks_late` {}", outcome(late)),
                Some(Err(reason)) => format!("; `acks_late` not measured ({reason})"),
                None => String::new(),
            };
            outcome(&measured.after_kill) + &late
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
    format!("{} / {} / {}", after.finished, after.lost, after.twice)
}

/// Formats the median with its significant digits.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        comparison::{KILL, Name, system::Records},
        machine::Machine,
    };

    fn spread(median: f64) -> Spread {
        Spread { median, min: median, max: median }
    }

    fn measured() -> Measured {
        Measured {
            about: "Celery 5, as it comes".to_owned(),
            p50_ms: spread(2.34),
            p99_ms: spread(12.4),
            jobs_per_second: spread(1234.0),
            packed_jobs_per_second: None,
            idle_mib: 210.4,
            after_kill: AfterKill { finished: 199, lost: 1, twice: 0 },
            history: Records { records: 0, of: 500 },
        }
    }

    #[test]
    fn a_system_that_was_not_measured_has_a_reason_and_no_figures() {
        let celery = Column {
            name: Name::Celery,
            measured: Ok(measured()),
            after_kill_late: Some(Ok(AfterKill { finished: 200, lost: 0, twice: 1 })),
        };
        let slurm =
            Column { name: Name::Slurm, measured: Err("slurmd not installed".to_owned()), after_kill_late: None };
        let machine = Machine::look("RabbitMQ 3".to_owned(), 0.0);
        let text = render(&Report { machine, kill: KILL, columns: vec![celery, slurm] });
        for line in [
            "- Celery 5, as it comes",
            "- Slurm: not measured (slurmd not installed)",
            "|  | Celery | Slurm |",
            "| --- | --- | --- |",
            "| one job at a time, median (p99) | 2.3 (12) ms | not measured |",
            "| jobs/s, up to 64 in flight | 1200 | not measured |",
            "| worker killed, 200 jobs: finished / lost / run twice | 199 / 1 / 0; `acks_late` 200 / 0 / 1 | not measured |",
            "| jobs listed afterwards | 0 of 500 | not measured |",
            "| idle memory | 210 MiB | not measured |",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
