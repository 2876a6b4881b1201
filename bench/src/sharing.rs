//! `gpufleet-bench sharing`: measures how pools and workers share devices, with jobs that sleep on the device.
//!
//! Sleeping jobs leave the CPU to broker, client and supervisor. So the figures show which job gets which slot and when, even on a machine
//! with few cores.

mod flow;
mod guarantee;
mod scaling;
mod weights;

use comfy_table::{Cell, CellAlignment};
use serde::Serialize;

use crate::{ground, machine::Machine, round_trips::Format, stats::Spread, table};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Which of them: weights, guarantee, scaling
    #[arg(value_enum, default_values_t = [Subject::Weights, Subject::Guarantee, Subject::Scaling])]
    subjects: Vec<Subject>,
    /// Rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    repeat: u64,
    /// How long a measurement lasts, in each round
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// How the result is printed
    #[arg(short, long, default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    Weights,
    Guarantee,
    Scaling,
}

/// The measured figures and their targets.
#[derive(Debug, Serialize)]
pub struct SharingReport {
    pub machine: Machine,
    pub rounds: u64,
    pub lines: Vec<Line>,
}

/// A figure of the report.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    pub what: String,
    pub unit: &'static str,
    pub spread: Spread,
    pub aim: Option<String>,
}

impl Line {
    fn of(what: impl Into<String>, unit: &'static str, figures: &[f64]) -> Self {
        let spread = Spread::of_rounds(figures.iter().copied());
        Self { what: what.into(), unit, spread, aim: None }
    }

    fn aim(self, aim: impl Into<String>) -> Self {
        Self { aim: Some(aim.into()), ..self }
    }
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let (services, machine) = ground::services().await?;
    let mut lines = Vec::new();
    for subject in &options.subjects {
        eprintln!("{subject:?} …");
        lines.extend(match subject {
            Subject::Weights => weights::measure(&services, options).await?,
            Subject::Guarantee => guarantee::measure(&services, options).await?,
            Subject::Scaling => scaling::measure(&services, options).await?,
        });
    }
    let report = SharingReport { machine, rounds: options.repeat, lines };
    match options.output {
        Format::Table => print!("{}", render(&report)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(())
}

fn render(report: &SharingReport) -> String {
    let mut table = table::table(["", "seen", "", "aim"]);
    for line in &report.lines {
        let seen = Cell::new(table::spread(&line.spread, 2)).set_alignment(CellAlignment::Right);
        let aim = line.aim.as_deref().unwrap_or_default();
        table.add_row([Cell::new(&line.what), seen, Cell::new(line.unit), Cell::new(aim)]);
    }
    format!(
        "{}\nmedians of {} rounds, with the lowest and highest in parentheses\n\n{table}\n",
        report.machine.line(),
        report.rounds
    )
}
