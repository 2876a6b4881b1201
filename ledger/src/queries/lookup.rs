//! Finds a job by the beginning or the end of its id, as people type it.
//!
//! Ids begin with the time of submission, so the ids of jobs that were submitted together begin alike. Their ends differ.

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    ledger::{Ledger, ask},
    window::{Window, Windows},
};
use crate::{JobMatch, LedgerError};

/// The number of digits in a UUID without its hyphens.
const DIGITS: usize = 32;
/// The minimum length of a text that is searched as the end of an id. In a month of a million jobs, fewer digits are never unique.
const END_DIGITS_MIN: usize = 4;
/// The number of last digits that have an index, as a number of 32 bits.
const INDEXED_DIGITS: usize = 8;

impl Ledger {
    /// Finds the job whose id begins or ends with this text, with or without hyphens. A text that can't be a part of an id matches none.
    ///
    /// If an id begins with the text, ends are not searched. Ends are searched in the newest months first, and the search stops at the
    /// first match, so older jobs do not make the text ambiguous.
    pub async fn find_job(&self, text: &str) -> Result<JobMatch, LedgerError> {
        let Some(digits) = digits(text) else { return Ok(JobMatch::None) };
        let mut lease = self.connection.lease().await?;
        let mut ids = ask("looking for a job", beginning_with(lease.connection(), &digits)).await?;
        if ids.is_empty() && (END_DIGITS_MIN..DIGITS).contains(&digits.len()) {
            for window in Windows::new(None, None, Utc::now()) {
                ids = ask("looking for a job", ending_with(lease.connection(), &digits, window)).await?;
                if !ids.is_empty() {
                    break;
                }
            }
        }
        lease.keep();
        match ids.as_slice() {
            [] => Ok(JobMatch::None),
            // Retention may have dropped the row in the meantime.
            [one] => {
                Ok(self.job(JobId::from_uuid(*one)).await?.map_or(JobMatch::None, |job| JobMatch::One(Box::new(job))))
            }
            many => Ok(JobMatch::Many(many.iter().copied().map(JobId::from_uuid).collect())),
        }
    }
}

/// Searches the month that the digits determine, the stored keys, and jobs that were recorded before there were keys.
async fn beginning_with(connection: &mut PgConnection, digits: &str) -> Result<Vec<Uuid>, sqlx::Error> {
    let (first, last) = range_of(digits);
    sqlx::query_scalar!(
        r#"/* queries::job_by_beginning */
        (select job_id as "job_id!" from jobs where job_id between $1 and $2 and id_at between $3 and $4 order by job_id desc limit $5)
        union (select job_id from job_keys where job_id between $1 and $2 order by job_id desc limit $5)
        union (select job_id from jobs where job_id between $1 and $2 and id_at = 'epoch' order by job_id desc limit $5)
        order by 1 desc limit $5"#,
        first,
        last,
        time_of(first),
        time_of(last),
        i64::from(JobMatch::SHOWN_MAX),
    )
    .fetch_all(connection)
    .await
}

/// Finds the jobs of the window first and sorts them afterwards. In one step, the planner would rather scan all jobs in order.
async fn ending_with(connection: &mut PgConnection, digits: &str, window: Window) -> Result<Vec<Uuid>, sqlx::Error> {
    let (first, last) = ends_of(digits);
    sqlx::query_scalar!(
        r#"/* queries::job_by_end */
        with found as materialized (
            select job_id, id_at from jobs
            where id_at >= $1 and id_at < $2 and job_id_end(job_id) between $3 and $4
              and right(replace(job_id::text, '-', ''), length($5::text)) = $5
            limit $6
        )
        select job_id as "job_id!" from found order by id_at desc, job_id desc"#,
        window.from,
        window.to,
        first,
        last,
        digits,
        i64::from(JobMatch::SHOWN_MAX),
    )
    .fetch_all(connection)
    .await
}

/// Returns the digits of a text in lower case and without hyphens, if they may be a part of an id.
fn digits(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
    let fits = (1..=DIGITS).contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_hexdigit());
    fits.then_some(digits)
}

/// Returns the lowest and the highest id that begin with these digits.
fn range_of(digits: &str) -> (Uuid, Uuid) {
    let padded = |digit: &str| {
        let text = digits.to_owned() + &digit.repeat(DIGITS - digits.len());
        Uuid::try_parse(&text).expect("32 hexadecimal digits are a UUID")
    };
    (padded("0"), padded("f"))
}

/// Returns the time at the beginning of an id, whatever its version: the first 48 bits are milliseconds.
fn time_of(id: Uuid) -> DateTime<Utc> {
    let milliseconds = (id.as_u128() >> 80) as i64;
    let time = DateTime::from_timestamp_millis(milliseconds).expect("chrono knows the years that 48 bits can name");
    time.clamp(Window::ALL.from, Window::ALL.to)
}

/// Returns the lowest and the highest number that the database's function `job_id_end` gives for ids that end with these digits.
fn ends_of(digits: &str) -> (i64, i64) {
    let reversed: String = digits.chars().rev().take(INDEXED_DIGITS).collect();
    let padded = |digit: &str| {
        let text = reversed.clone() + &digit.repeat(INDEXED_DIGITS - reversed.len());
        i64::from_str_radix(&text, 16).expect("eight hexadecimal digits are a number")
    };
    (padded("0"), padded("f"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_spans_the_ids_that_begin_with_it_and_their_times() {
        let (first, last) = range_of(&digits("0193-A").unwrap());
        assert_eq!(first.to_string(), "0193a000-0000-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0193afff-ffff-ffff-ffff-ffffffffffff");
        assert_eq!(time_of(first).timestamp_millis(), 0x0193_a000_0000);
        assert_eq!(time_of(last).timestamp_millis(), 0x0193_afff_ffff);
        for text in ["", "-", "xyz", "ü", &"0".repeat(33)] {
            assert_eq!(digits(text), None, "{text:?}");
        }
        assert_eq!(time_of(Uuid::max()), Window::ALL.to);
    }

    #[test]
    fn an_end_spans_the_ids_that_end_with_it() {
        assert_eq!(ends_of("4e5f"), (0xf5e4_0000, 0xf5e4_ffff));
        assert_eq!(ends_of("0a1b2c3d4e5f"), (0xf5e4_d3c2, 0xf5e4_d3c2));
    }
}
