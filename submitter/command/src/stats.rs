//! `gpufleet stats`: outcomes and times of the jobs that have ended.

use clap::Args;
use gpufleet_ledger::{StatisticsRow, Times};

use super::{
    complaint::Complaint,
    exit::Exit,
    json, quantity,
    statistics::{self, Layout, StatisticsOptions},
    table::Column,
};

/// Show outcomes and times of the jobs that have ended
///
/// The recorder counts each job once, when it ends. Percentiles are within 2 %. WAIT is the time from submission to the start on the device,
/// RUN the time on the device. An attempt that another attempt's outcome superseded does not count, and neither does a session.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", json::STATS))]
pub struct Options {
    #[command(flatten)]
    statistics: StatisticsOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet stats --by kernel --since 30d
  gpufleet stats --by user --pool team-a";

const LAYOUT: Layout<'static> = Layout {
    columns: &[
        Column::Right("JOBS"),
        Column::Right("FAILED"),
        Column::Right("CANCELLED"),
        Column::Right("LOST"),
        Column::Right("WAIT P50"),
        Column::Right("WAIT P95"),
        Column::Right("RUN P50"),
        Column::Right("RUN P95"),
        Column::Right("RUN P99"),
        Column::Right("KERNEL P50"),
    ],
    cells,
    lists: has_jobs,
    dispensable: &["KERNEL P50", "LOST", "CANCELLED", "RUN P99", "WAIT P50", "RUN P50"],
};

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    statistics::print(&options.statistics, &LAYOUT).await?;
    Ok(Exit::Success)
}

/// Whether the row has more than the device time of sessions.
fn has_jobs(row: &StatisticsRow) -> bool {
    row.jobs > 0 || row.attempts_lost > 0 || row.attempts_superseded > 0
}

fn cells(row: &StatisticsRow) -> Vec<String> {
    let time = |times: Option<Times>, of: fn(Times) -> u64| {
        times.map_or_else(|| "-".to_owned(), |times| quantity::micros(of(times)))
    };
    let unsuccessful = row.failed + row.expired + row.dead;
    let failed = match row.jobs {
        0 => "-".to_owned(),
        jobs => format!("{unsuccessful} ({:.1} %)", unsuccessful as f64 * 100.0 / jobs as f64),
    };
    vec![
        row.jobs.to_string(),
        failed,
        row.cancelled.to_string(),
        row.attempts_lost.to_string(),
        time(row.queue, |times| times.p50_us),
        time(row.queue, |times| times.p95_us),
        time(row.total, |times| times.p50_us),
        time(row.total, |times| times.p95_us),
        time(row.total, |times| times.p99_us),
        time(row.kernel, |times| times.p50_us),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_outcomes_and_percentiles() {
        insta::assert_snapshot!(statistics::render(&statistics::tests::statistics(), 50, "-", &LAYOUT, None));
    }

    #[test]
    fn a_row_of_sessions_alone_is_not_listed() {
        let row = statistics::tests::statistics().rows.remove(0);
        assert!(has_jobs(&row));
        assert!(!has_jobs(&StatisticsRow { jobs: 0, attempts_lost: 0, attempts_superseded: 0, ..row }));
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        json::check(json::STATS, &statistics::tests::statistics());
    }
}
