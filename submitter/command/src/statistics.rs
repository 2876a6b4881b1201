//! What `gpufleet stats` and `gpufleet usage` have in common: which jobs they count, and how they read them.

use chrono::{DateTime, Utc};
use clap::Args;
use gpufleet_ledger::{Dimension, Statistics, StatisticsFilter, StatisticsRow};

use super::{
    catch_up,
    complaint::Complaint,
    options::{Format, OutputOptions},
    output,
    source::{Source, SourceOptions},
    spec,
    table::{self, Column},
    time,
    waiting::Spinner,
};

#[derive(Debug, Args)]
pub struct StatisticsOptions {
    /// One row for each kernel, pool, user, worker or device model, or for each value of a declared label key: label:KEY
    #[arg(long, value_name = "DIMENSION")]
    by: Option<Dimension>,
    /// Only jobs that ended since then: how long ago (2h, 30d), or a time (2026-11-20, 2026-11-20 08:00 UTC), which is local without a zone. It
    /// is rounded down to the hour, and to the day (UTC) if it is more than two months ago
    #[arg(long, value_name = "TIME", value_parser = time::since, default_value = "7d")]
    since: DateTime<Utc>,
    /// Only jobs of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Maximum number of rows in the table, those with the most device time first
    #[arg(long, default_value_t = 50, value_name = "COUNT", value_parser = spec::whole(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    source: SourceOptions,
}

/// A table of statistics: a column for the value, and others.
pub struct Layout<'a> {
    pub columns: &'a [Column],
    pub cells: fn(&StatisticsRow) -> Vec<String>,
    /// Whether a row is listed.
    pub lists: fn(&StatisticsRow) -> bool,
    /// The columns that are left out on a narrow terminal, in this order.
    pub dispensable: &'a [&'a str],
}

/// Reads the statistics and prints them.
pub async fn print(options: &StatisticsOptions, layout: &Layout<'_>) -> Result<(), Complaint> {
    let filter = StatisticsFilter { by: options.by.clone(), since: options.since, pool: options.pool.clone() };
    let work = Source::ask(&options.source, async |source| {
        catch_up::all(source).await?;
        source.statistics(&filter).await
    });
    let mut statistics = Spinner::new("reading the statistics").around(work).await?;
    statistics.rows.retain(layout.lists);
    match options.output.format {
        Format::Json => output::emit_json(&statistics)?,
        Format::Table => {
            let unnamed = if options.by.is_none() { "all" } else { "-" };
            output::emit(&render(&statistics, options.limit as usize, unnamed, layout, output::stdout_width()))?;
            explain(&statistics, options);
        }
    }
    Ok(())
}

/// `unnamed` stands for the empty value.
pub fn render(
    statistics: &Statistics,
    limit: usize,
    unnamed: &str,
    layout: &Layout<'_>,
    width: Option<usize>,
) -> String {
    let shown = statistics.rows.iter().take(limit);
    let rows: Vec<Vec<String>> = shown
        .map(|row| {
            let value = if row.value.is_empty() { unnamed } else { &row.value };
            [vec![value.to_owned()], (layout.cells)(row)].concat()
        })
        .collect();
    let columns = [&[Column::Left("VALUE")], layout.columns].concat();
    table::fit(&columns, &rows, width, layout.dispensable)
}

fn explain(statistics: &Statistics, options: &StatisticsOptions) {
    let since = time::minutes(statistics.since);
    let left = statistics.rows.len().saturating_sub(options.limit as usize) as u64 + statistics.rows_left_out;
    output::note(&match (statistics.rows.is_empty(), left) {
        (true, _) => match &options.by {
            Some(by @ Dimension::Label(key)) => {
                format!(
                    "no job with {by} has ended since {since}; jobs are counted by declared label keys, and {key:?} may not be one"
                )
            }
            _ => format!("no job has ended since {since}"),
        },
        (false, 0) => format!("jobs that ended since {since}"),
        (false, left) => format!("jobs that ended since {since}; {left} more rows, see --limit"),
    });
}

#[cfg(test)]
pub mod tests {
    use gpufleet_ledger::Times;

    use super::*;

    pub fn statistics() -> Statistics {
        let times = |us| Some(Times { p50_us: us, p95_us: 2 * us, p99_us: 3 * us, max_us: 4 * us });
        let saxpy = StatisticsRow {
            value: "saxpy".to_owned(),
            jobs: 1200,
            succeeded: 1100,
            failed: 80,
            cancelled: 12,
            expired: 3,
            dead: 5,
            verdict_user: 60,
            verdict_timeout: 23,
            verdict_out_of_memory: 12,
            verdict_device: 0,
            verdict_infrastructure: 5,
            attempts_lost: 7,
            attempts_superseded: 1,
            device_us: 7_384_000_123,
            charged_us: 7_400_000_000,
            queue_us: 120_000_000,
            input_bytes: 3 << 30,
            output_bytes: 1 << 20,
            queue: times(1_000),
            compile: times(0),
            copy: times(250),
            kernel: times(4_000),
            total: times(6_000),
        };
        let none = StatisticsRow {
            value: String::new(),
            jobs: 1,
            succeeded: 0,
            failed: 0,
            cancelled: 1,
            expired: 0,
            dead: 0,
            compile: None,
            copy: None,
            kernel: None,
            total: None,
            ..saxpy.clone()
        };
        Statistics { since: "2026-11-20T08:00:00Z".parse().unwrap(), rows: vec![saxpy, none], rows_left_out: 0 }
    }
}
