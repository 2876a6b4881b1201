//! Prints the report as a table for people.

use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::{
    report::{Report, Subject, Summary},
    stats::Spread,
    usage::Part,
};

pub fn render(report: &Report) -> String {
    let mut text = header(report);
    let cpu = by_part(&report.cases, 0, |summary| &summary.cpu_us_per_job);
    let switches = by_part(&report.cases, 1, |summary| &summary.switches_per_job);
    let _ = writeln!(text, "\n{}\n\nCPU in µs per job\n{cpu}", figures(&report.cases));
    let _ = writeln!(text, "\nVoluntary context switches per job\n{switches}\n");
    text.push_str(&resolution(report));
    text
}

fn header(report: &Report) -> String {
    let (machine, setup) = (&report.machine, &report.setup);
    let plural = |count: u32| if count == 1 { "" } else { "s" };
    let python: String = setup.python.iter().map(|about| format!("{about}\n")).collect();
    format!(
        "{}\n\
         {} worker{} with device {}{}, ledger {}; saxpy over {} floats, {} B a task, {} tasks a packed message\n\
         {python}\
         {} round{}, the loops taking turns; medians, with the lowest and highest round in parentheses\n",
        machine.line(),
        setup.workers,
        plural(setup.workers),
        setup.device,
        setup.prefetch.map_or_else(String::new, |prefetch| format!(" and a prefetch of {prefetch}")),
        if setup.ledger { "on" } else { "off" },
        setup.floats,
        setup.task_bytes,
        setup.pack,
        setup.rounds,
        if setup.rounds == 1 { "" } else { "s" },
    )
}

fn figures(cases: &[Summary]) -> Table {
    let mut table = table(["loop", "in flight", "jobs", "jobs/s", "of bare", "p50 ms", "p99 ms"]);
    for summary in cases {
        table.add_row(row(
            summary.case.subject,
            [
                summary.case.in_flight.to_string(),
                summary.case.jobs.to_string(),
                spread(&summary.jobs_per_second, 0),
                summary.of_bare.as_ref().map_or_else(String::new, |ratio| spread(&percent(ratio), 0) + " %"),
                spread(&summary.p50_ms, 2),
                spread(&summary.p99_ms, 2),
            ],
        ));
    }
    table
}

fn by_part(cases: &[Summary], digits: usize, figures: impl Fn(&Summary) -> &BTreeMap<Part, f64>) -> Table {
    let head = ["loop", "in flight"].into_iter().chain(Part::ALL.map(Part::name)).chain(["all"]);
    let mut table = table(head);
    for summary in cases {
        let figures = figures(summary);
        let of = |part| figures.get(&part).map_or_else(String::new, |figure| format!("{figure:.digits$}"));
        let all = format!("{:.digits$}", figures.values().sum::<f64>());
        let cells = [summary.case.in_flight.to_string()].into_iter().chain(Part::ALL.map(of)).chain([all]);
        table.add_row(row(summary.case.subject, cells));
    }
    table
}

/// Describes the resolution of the run. The bare loop does the same work in each round, so its spread is that of the
/// machine.
fn resolution(report: &Report) -> String {
    let bare = report.cases.iter().find(|summary| summary.case.subject == Subject::Bare);
    match bare {
        Some(bare) if report.setup.rounds > 1 => format!(
            "Resolution: the bare loop's own rounds lie {:.0} % apart; take smaller differences for noise.\n",
            bare.jobs_per_second.relative() * 100.0
        ),
        _ => "Resolution: one round tells nothing about it.\n".to_owned(),
    }
}

pub fn table<'a>(head: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(head);
    table
}

fn row(subject: Subject, figures: impl IntoIterator<Item = String>) -> Vec<Cell> {
    let figures = figures.into_iter().map(|figure| Cell::new(figure).set_alignment(CellAlignment::Right));
    [Cell::new(subject.name())].into_iter().chain(figures).collect()
}

fn percent(spread: &Spread) -> Spread {
    Spread { median: spread.median * 100.0, min: spread.min * 100.0, max: spread.max * 100.0 }
}

pub fn spread(spread: &Spread, digits: usize) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}
