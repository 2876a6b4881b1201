//! Takes the partitions of old months and days out of their tables.

use chrono::{DateTime, Datelike as _, Months, NaiveDate, NaiveTime, Utc};
use sqlx::PgConnection;

use crate::patience::patiently;

/// A table with a partition for each month or day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Jobs,
    Attempts,
    /// This table has a partition for each day.
    Samples,
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Attempts => "attempts",
            Self::Samples => "device_samples",
        }
    }
}

/// Retires the partitions whose months ended before this time.
pub(super) async fn retire(
    connection: &mut PgConnection,
    table: Table,
    before: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let partitions = sqlx::query_scalar!(
        r#"/* retention::months */
        select inhrelid::regclass::text as "partition!" from pg_inherits where inhparent = $1::text::regclass order by 1"#,
        table.name(),
    )
    .fetch_all(&mut *connection)
    .await?;
    let has_default = table != Table::Samples;
    let table = table.name();
    for partition in partitions.iter().filter(|partition| end_of(table, partition).is_some_and(|end| end <= before)) {
        // The timestamp gives the archive another name than that of a month which was created again.
        let retired = format!("retired_{partition}_{}", Utc::now().timestamp());
        let detach =
            format!("alter table {table} detach partition {partition}; alter table {partition} rename to {retired}");
        patiently(connection, &detach).await?;
    }
    if !has_default {
        return Ok(());
    }
    // These are few rows: recorders wrote them before they noticed that their month is gone.
    let end = NaiveDate::from_ymd_opt(before.year(), before.month(), 1).expect("every month has a first day");
    let strays = format!("delete from {table}_default where id_at < '{}'", end.and_time(NaiveTime::MIN).and_utc());
    patiently(connection, &if table == Table::Jobs.name() { with_what_belongs_to(&strays) } else { strays }).await
}

/// Returns a statement that deletes jobs together with their rows in other tables.
fn with_what_belongs_to(deletion: &str) -> String {
    let of_table =
        |table| format!(", of_{table} as (delete from {table} using gone where {table}.job_id = gone.job_id)");
    let others: String = ["job_outputs", "job_inputs", "job_keys"].map(of_table).concat();
    format!("with gone as ({deletion} returning job_id){others} select count(*) from gone")
}

/// Returns the time at which the month or day of a partition ends; `None` for other partitions.
fn end_of(table: &str, partition: &str) -> Option<DateTime<Utc>> {
    let (year, month) = partition.strip_prefix(table)?.strip_prefix('_')?.split_once('_')?;
    if let Some((month, day)) = month.split_once('_') {
        let day = NaiveDate::from_ymd_opt(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
        return Some(day.succ_opt()?.and_time(NaiveTime::MIN).and_utc());
    }
    let first = NaiveDate::from_ymd_opt(year.parse().ok()?, month.parse().ok()?, 1)?;
    Some(first.checked_add_months(Months::new(1))?.and_time(NaiveTime::MIN).and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_partitions_of_months_and_days_have_an_end() {
        let december = end_of("jobs", "jobs_2025_12").unwrap();
        assert_eq!(december.to_rfc3339(), "2026-01-01T00:00:00+00:00");
        let day = end_of("device_samples", "device_samples_2025_12_31").unwrap();
        assert_eq!(day.to_rfc3339(), "2026-01-01T00:00:00+00:00");
        for other in ["jobs_default", "jobs_untimed", "attempts_2025_12", "jobs_2025_13"] {
            assert_eq!(end_of("jobs", other), None, "{other}");
        }
    }
}
