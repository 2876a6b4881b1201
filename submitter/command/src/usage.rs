//! `gpufleet usage`: what jobs have used, for charge-back.

use clap::Args;
use gpufleet_ledger::StatisticsRow;

use super::{
    complaint::Complaint,
    exit::Exit,
    json, quantity,
    statistics::{self, Layout, StatisticsOptions},
    table::Column,
};

/// Show the device time and the bytes that jobs have used, for charge-back
///
/// The device time is that of all attempts: an attempt that another one superseded used its device too. Workers measure no time for
/// attempts that lost their executor and for cancelled ones. The sums are exact: DEVICE SECONDS has microseconds. A session counts with the
/// time in which the device worked for it, and is not one of the JOBS.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", json::STATS))]
pub struct Options {
    #[command(flatten)]
    statistics: StatisticsOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet usage --by user --since 30d
  gpufleet usage --by label:project --since 2026-11-01 -o json";

const LAYOUT: Layout<'static> = Layout {
    columns: &[
        Column::Right("JOBS"),
        Column::Right("DEVICE SECONDS"),
        Column::Right("DEVICE TIME"),
        Column::Right("INPUT"),
        Column::Right("OUTPUT"),
    ],
    cells,
    lists: |_| true,
    dispensable: &["DEVICE TIME", "OUTPUT", "INPUT"],
};

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    statistics::print(&options.statistics, &LAYOUT).await?;
    Ok(Exit::Success)
}

fn cells(row: &StatisticsRow) -> Vec<String> {
    vec![
        row.jobs.to_string(),
        format!("{}.{:06}", row.device_us / 1_000_000, row.device_us % 1_000_000),
        quantity::micros(row.device_us),
        quantity::bytes(row.input_bytes),
        quantity::bytes(row.output_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_device_seconds_to_the_microsecond() {
        insta::assert_snapshot!(statistics::render(&statistics::tests::statistics(), 50, "all", &LAYOUT, None));
    }
}
