//! Lists jobs page by page, newest first.

use std::collections::{BTreeMap, btree_map::Entry};

use chrono::{Duration, Utc};
use gpufleet_schema::HostProgramInfo;
use sqlx::{PgConnection, types::Json};

use super::{
    labels,
    ledger::{Ledger, ask},
    record::JobRecord,
    window::{Window, Windows},
};
use crate::{HistoryFilter, JobRow, LedgerError, Page, PageKey};

/// How far back a list goes if it filters by labels that have no index and names no earliest time. Such a list reads every job in that
/// window.
const UNINDEXED_WINDOW: Duration = Duration::days(7);

impl Ledger {
    /// Returns a page of the newest jobs that pass the filter. The next page continues after the key of the last job, not at an offset, so
    /// no job is shown twice or skipped while new ones arrive.
    pub async fn history(&self, filter: &HistoryFilter) -> Result<Page, LedgerError> {
        let limit = filter.limit.clamp(1, HistoryFilter::LIMIT_MAX) as usize;
        let Some(labels) = Labels::of(&filter.labels) else { return Ok(Page::default()) };
        let mut lease = self.connection.lease().await?;
        let indexed = match labels.is_empty() {
            true => Vec::new(),
            false => ask("reading the label keys with an index", labels::indexed(lease.connection())).await?,
        };
        let label = labels.of_keys(&indexed);
        let searched_since =
            (!labels.is_empty() && label.is_none() && filter.since.is_none()).then(|| Utc::now() - UNINDEXED_WINDOW);
        let filter = &HistoryFilter { since: filter.since.or(searched_since), ..filter.clone() };
        // One row more than the limit shows whether another page follows.
        let wanted = limit + 1;
        let mut jobs = Vec::new();
        for window in windows(filter) {
            let open = wanted - jobs.len();
            let listed = list(lease.connection(), filter, window, label, labels.others(label), open);
            jobs.extend(ask("listing jobs", listed).await?);
            if jobs.len() == wanted {
                break;
            }
        }
        lease.keep();
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().filter(|_| more).map(|(key, _)| *key);
        Ok(Page { jobs: jobs.into_iter().map(|(_, job)| job).collect(), next, searched_since })
    }
}

/// Returns the windows to search for a page.
fn windows(filter: &HistoryFilter) -> Windows {
    // One microsecond later, because other jobs may have the same time as the last job of the previous page.
    let after = filter.before.map(|key| key.id_at.checked_add_signed(Duration::microseconds(1)).unwrap_or(key.id_at));
    let until = [filter.until, after].into_iter().flatten().min();
    Windows::new(filter.since, until, Utc::now())
}

/// Lists up to `limit` jobs of a window, each with its key.
async fn list(
    connection: &mut PgConnection,
    filter: &HistoryFilter,
    window: Window,
    label: Option<(&str, &str)>,
    other_labels: Option<serde_json::Value>,
    limit: usize,
) -> Result<Vec<(PageKey, JobRow)>, sqlx::Error> {
    let names: Vec<String> = filter.states.iter().map(|state| state.name().to_owned()).collect();
    // A single state becomes an equality, so that its index also gives the order.
    let (state, states) = match names.as_slice() {
        [] => (None, None),
        [one] => (Some(one.as_str()), None),
        many => (None, Some(many)),
    };
    let before_at = filter.before.map(|key| key.id_at);
    let before_id = filter.before.map(|key| key.job_id.as_uuid());
    let records = sqlx::query_as!(
        JobRecord,
        r#"/* queries::history */
            select j.job_id as "job_id!", j.id_at as "id_at!", j.state as "state!", j.name, j.labels as "labels: Json<BTreeMap<String, String>>",
                   j.pool, j.priority, j.program, j.kernel, j.client, j.user_id, j.created_at as "created_at!", j.submitted_at,
                   j.started_at, j.finished_at, coalesce(a.attempts, 0) as "attempts!",
                   a.attempt as "attempt?", a.worker as "worker?",
                   (j.state = 'running' and a.state = 'running' and h.is_unheard) is true as "is_unheard!", a.device, a.device_name, a.emulated,
                   a.verdict, a.failure_code, a.failure_message, a.failure_line, j.input_bytes, j.lease_bytes, a.output_bytes, a.queue_us,
                   j.host_program as "host_program: Json<HostProgramInfo>",
                   a.launches_us, a.total_us
            from (
                select * from jobs
                where id_at >= $1 and id_at < $2
                  and ($3::text is null or state = $3)
                  and ($4::text[] is null or state = any($4))
                  and ($5::text is null or kernel = $5)
                  and ($6::text is null or pool = $6)
                  and ($7::text is null or user_id = $7)
                  and ($8::text is null or worker = $8)
                  and ($9::text is null or name = $9)
                  and ($10::text is null or labels ->> $10 = $11::text)
                  and ($12::jsonb is null or labels @> $12)
                  and ($13::timestamptz is null or (id_at, job_id) < ($13, $14::uuid))
                  and ($16::text is null or (host_program is not null and coalesce(host_program ->> 'environment', host_program ->> 'image') = $16))
                order by id_at desc, job_id desc
                limit $15
            ) j
            left join lateral (
                select *, count(*) over () as attempts from attempts
                where job_id = j.job_id and id_at = j.id_at and id_at >= $1 and id_at < $2
            ) a on a.attempt = coalesce(j.final_attempt, j.attempt)
            left join worker_hearing h on h.worker = a.worker
            order by j.id_at desc, j.job_id desc"#,
        window.from,
        window.to,
        state,
        states,
        filter.kernel.as_deref(),
        filter.pool.as_deref(),
        filter.user_id.as_deref(),
        filter.worker.as_deref(),
        filter.name.as_deref(),
        label.map(|(key, _)| key),
        label.map(|(_, value)| value),
        other_labels,
        before_at,
        before_id,
        limit as i64,
        filter.environment.as_deref(),
    )
    .fetch_all(connection)
    .await?;
    Ok(records.into_iter().map(|record| (record.key(), JobRow::from(record))).collect())
}

/// The labels of a filter, by their keys.
struct Labels<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Labels<'a> {
    /// Returns `None` if one key has two different values, because no job can match.
    fn of(wanted: &'a [(String, String)]) -> Option<Self> {
        let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
        for (key, value) in wanted {
            match labels.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(value),
                Entry::Occupied(entry) if *entry.get() == value => {}
                Entry::Occupied(_) => return None,
            }
        }
        Some(Self(labels))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a label whose key is among these.
    fn of_keys(&self, keys: &[String]) -> Option<(&'a str, &'a str)> {
        keys.iter().find_map(|key| self.0.get_key_value(key.as_str())).map(|(key, value)| (*key, *value))
    }

    /// Returns the other labels that a job must have, as an object. `label` is left out: the planner would count it twice in its estimate,
    /// and would sort all matches instead of following the index.
    fn others(&self, label: Option<(&str, &str)>) -> Option<serde_json::Value> {
        let mut others = self.0.clone();
        if let Some((key, _)) = label {
            others.remove(key);
        }
        (!others.is_empty()).then(|| serde_json::json!(others))
    }
}
