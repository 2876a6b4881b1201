//! Lists of jobs, newest first, page by page.

use std::collections::{BTreeMap, btree_map::Entry};

use gpufleet_schema::JobState;
use sqlx::{PgConnection, types::Json};

use super::{Ledger, ask, record::JobRecord};
use crate::{HistoryFilter, JobRow, LedgerError, Page, PageKey, StateCount, queries::record::job_state};

impl Ledger {
    /// The newest jobs that pass the filter. A page continues after the key of the last job instead of at a count, so that no job is shown
    /// twice or skipped while new ones arrive.
    pub async fn history(&self, filter: &HistoryFilter) -> Result<Page, LedgerError> {
        let limit = filter.limit.clamp(1, HistoryFilter::LIMIT_MAX) as usize;
        let Some(labels) = Labels::of(&filter.labels) else { return Ok(Page { jobs: Vec::new(), next: None }) };
        // One row more than the limit shows whether another page follows.
        let mut lease = self.connection.lease().await?;
        let mut jobs = ask("listing jobs", list(lease.connection(), filter, labels, limit + 1)).await?;
        lease.keep();
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().filter(|_| more).map(|job| PageKey { created_at: job.created_at, job_id: job.job_id });
        Ok(Page { jobs, next })
    }

    /// The number of jobs in each state, with every state listed. It scans an index of all jobs, so run it rarely.
    pub async fn count_by_state(&self) -> Result<Vec<StateCount>, LedgerError> {
        let mut lease = self.connection.lease().await?;
        let counted = ask(
            "counting jobs",
            sqlx::query!(r#"/* queries::count_by_state */ select state, count(*) as "jobs!" from jobs group by state"#)
                .fetch_all(lease.connection()),
        )
        .await?;
        lease.keep();
        let counts: BTreeMap<JobState, u64> =
            counted.into_iter().map(|row| (job_state(&row.state), row.jobs.unsigned_abs())).collect();
        Ok(JobState::ALL
            .iter()
            .map(|state| StateCount { state: *state, jobs: counts.get(state).copied().unwrap_or(0) })
            .collect())
    }
}

async fn list(
    connection: &mut PgConnection,
    filter: &HistoryFilter,
    labels: Labels,
    limit: usize,
) -> Result<Vec<JobRow>, sqlx::Error> {
    let names: Vec<String> = filter.states.iter().map(|state| state.name().to_owned()).collect();
    // A single state is an equality, so that its index also gives the order.
    let (state, states) = match names.as_slice() {
        [] => (None, None),
        [one] => (Some(one.as_str()), None),
        many => (None, Some(many)),
    };
    let before_at = filter.before.map(|key| key.created_at);
    let before_id = filter.before.map(|key| key.job_id.as_uuid());
    let records = sqlx::query_as!(
        JobRecord,
        r#"/* queries::history */
            select j.job_id as "job_id!", j.state as "state!", j.name, j.labels as "labels: Json<BTreeMap<String, String>>",
                   j.pool, j.priority, j.program, j.kernel, j.client, j.user_id, j.created_at as "created_at!", j.submitted_at,
                   j.started_at, j.finished_at, (select count(*) from attempts where job_id = j.job_id) as "attempts!",
                   a.attempt as "attempt?", a.worker as "worker?",
                   (j.state = 'running' and a.state = 'running' and h.is_unheard) is true as "is_unheard!", a.device, a.device_name, a.emulated,
                   a.verdict, a.failure_code, a.failure_message, a.failure_line, j.input_bytes, a.output_bytes, a.queue_us,
                   (select sum(us)::bigint from unnest(a.launches_us) as us) as kernel_us, a.total_us
            from (
                select * from jobs
                where ($1::text is null or state = $1)
                  and ($2::text[] is null or state = any($2))
                  and ($3::text is null or kernel = $3)
                  and ($4::text is null or pool = $4)
                  and ($5::timestamptz is null or created_at >= $5)
                  and ($6::jsonb is null or labels @> $6)
                  and ($7::timestamptz is null or (created_at, job_id) < ($7, $8::uuid))
                order by created_at desc, job_id desc
                limit $9
            ) j
            left join attempts a on a.job_id = j.job_id and a.attempt = coalesce(j.final_attempt, j.attempt)
            left join worker_hearing h on h.worker = a.worker
            order by j.created_at desc, j.job_id desc"#,
        state,
        states,
        filter.kernel.as_deref(),
        filter.pool.as_deref(),
        filter.since,
        labels.0,
        before_at,
        before_id,
        limit as i64,
    )
    .fetch_all(connection)
    .await?;
    Ok(records.into_iter().map(JobRow::from).collect())
}

/// The labels of a filter, as the object that a job's labels must contain.
struct Labels(Option<serde_json::Value>);

impl Labels {
    /// None if one key has two different values, which no job can match.
    fn of(wanted: &[(String, String)]) -> Option<Self> {
        let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
        for (key, value) in wanted {
            match labels.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(value),
                Entry::Occupied(entry) if *entry.get() == value => {}
                Entry::Occupied(_) => return None,
            }
        }
        Some(Self((!labels.is_empty()).then(|| serde_json::json!(labels))))
    }
}
