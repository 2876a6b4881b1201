//! Merges the counts of recorders into roll-ups of five minutes, hours and days. One recorder at a time does so, in one transaction, so
//! nothing is counted twice.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{
    rollups::{
        FIVE_MINUTES_KEPT, Grain, HOURS_KEPT_DAYS, Measures, OTHER, RollupColumns, RollupRecord, Sum, VALUES_MAX,
    },
    tx::Transaction,
};

/// The maximum number of rows that one transaction merges. It is large, because the rows of one hour and value become one row, and small
/// enough to hold in memory.
const DELTAS_MAX: i64 = 5000;

/// Merges some rows of `rollup_deltas`. Returns whether this recorder may have more to merge.
pub(super) struct MergeRollups;

/// Deletes roll-ups of five minutes and hours after their retention time. Those of days are kept.
pub(super) struct ForgetOld;

/// The rows of one hour or day, pool and dimension.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Group {
    at: DateTime<Utc>,
    pool: String,
    dimension: String,
}

/// Rows of one grain, by group and value.
type Rollups = BTreeMap<Group, BTreeMap<String, Measures>>;

impl Transaction for MergeRollups {
    const NAME: &'static str = "merging statistics";
    type Output = bool;

    async fn run(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let leads = sqlx::query_scalar!(
            r#"/* recorder::rollups::lead */ select pg_try_advisory_xact_lock(hashtextextended('gpufleet rollups', 0)) as "leads!""#
        );
        if !leads.fetch_one(&mut *connection).await? {
            return Ok(false);
        }
        let deltas = take(connection).await?;
        let deltas: Vec<(RollupRecord, Measures)> = deltas
            .into_iter()
            .map(|delta| delta.measures().map(|measures| (delta, measures)))
            .collect::<Result<_, _>>()?;
        for grain in [Grain::FiveMinutes, Grain::Hour, Grain::Day] {
            merge(grain, &deltas, connection).await?;
        }
        Ok(deltas.len() as i64 == DELTAS_MAX)
    }
}

impl Transaction for ForgetOld {
    const NAME: &'static str = "forgetting old statistics";
    type Output = ();

    async fn run(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "/* recorder::rollups::forget_five_minutes */
            delete from rollups
            where grain = 'five_minutes' and dimension = '' and at < now() - make_interval(secs => $1)",
            FIVE_MINUTES_KEPT.as_seconds_f64(),
        )
        .execute(&mut *connection)
        .await?;
        sqlx::query!(
            "/* recorder::rollups::forget_hours */
            delete from rollups where grain = 'hour' and at < now() - make_interval(days => $1)",
            HOURS_KEPT_DAYS,
        )
        .execute(connection)
        .await?;
        Ok(())
    }
}

impl Group {
    fn of(grain: Grain, record: &RollupRecord) -> Self {
        Self { at: grain.begin(record.at), pool: record.pool.clone(), dimension: record.dimension.clone() }
    }
}

async fn merge(
    grain: Grain,
    deltas: &[(RollupRecord, Measures)],
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let mut rollups = Rollups::new();
    for (delta, measures) in deltas.iter().filter(|(delta, _)| grain.has(&delta.dimension)) {
        let values = rollups.entry(Group::of(grain, delta)).or_default();
        values.entry(delta.value.clone()).or_default().merge(measures);
    }
    let known = read(grain, &rollups, connection).await?;
    let is_known = |group: &Group, value: &String| known.get(group).is_some_and(|values| values.contains_key(value));
    let growing = rollups.iter().filter(|(group, values)| values.keys().any(|value| !is_known(group, value)));
    let sizes = sizes(grain, growing.map(|(group, _)| group), connection).await?;
    for (group, values) in &mut rollups {
        let room = VALUES_MAX.saturating_sub(sizes.get(group).copied().unwrap_or_default());
        let fresh: Vec<String> = values.keys().filter(|value| !is_known(group, value)).cloned().collect();
        for value in fresh.into_iter().filter(|value| value != OTHER).skip(room) {
            let measures = values.remove(&value).expect("it is a key");
            values.entry(OTHER.to_owned()).or_default().merge(&measures);
        }
        for (value, measures) in known.get(group).into_iter().flatten() {
            if let Some(sum) = values.get_mut(value) {
                sum.merge(measures);
            }
        }
    }
    write(grain, &rollups, connection).await
}

/// Takes the oldest deltas that recorders have committed.
async fn take(connection: &mut PgConnection) -> Result<Vec<RollupRecord>, sqlx::Error> {
    sqlx::query_as!(
        RollupRecord,
        r#"/* recorder::rollups::take */
        delete from rollup_deltas where delta_id in (select delta_id from rollup_deltas order by delta_id limit $1)
        returning at, pool, dimension, value, succeeded, failed, cancelled, expired, dead, verdict_user, verdict_timeout,
                  verdict_out_of_memory, verdict_device, verdict_infrastructure, lost, superseded, device_us, queue_us,
                  input_bytes, output_bytes, stages, greatest(charged_us, device_us) as "charged_us!""#,
        DELTAS_MAX,
    )
    .fetch_all(connection)
    .await
}

/// Reads the existing rows of these values, and the row [`OTHER`] of each group.
async fn read(grain: Grain, wanted: &Rollups, connection: &mut PgConnection) -> Result<Rollups, sqlx::Error> {
    let (mut groups, mut values) = (GroupColumns::default(), Vec::new());
    for (group, of_group) in wanted {
        let other = (!of_group.contains_key(OTHER)).then_some(OTHER);
        for value in of_group.keys().map(String::as_str).chain(other) {
            groups.push(group);
            values.push(value);
        }
    }
    let records = sqlx::query_as!(
        RollupRecord,
        r#"/* recorder::rollups::read */
        select r.at, r.pool, r.dimension, r.value, r.succeeded, r.failed, r.cancelled, r.expired, r.dead, r.verdict_user,
               r.verdict_timeout, r.verdict_out_of_memory, r.verdict_device, r.verdict_infrastructure, r.lost, r.superseded,
               r.device_us, r.queue_us, r.input_bytes, r.output_bytes, r.stages,
               greatest(r.charged_us, r.device_us) as "charged_us!"
        from unnest($2::timestamptz[], $3::text[], $4::text[], $5::text[]) as wanted (at, pool, dimension, value)
        join rollups r on r.grain = $1 and r.at = wanted.at and r.pool = wanted.pool and r.dimension = wanted.dimension
                      and r.value = wanted.value"#,
        grain.name(),
        &groups.at,
        &groups.pool as &[&str],
        &groups.dimension as &[&str],
        &values as &[&str],
    )
    .fetch_all(connection)
    .await?;
    let mut known = Rollups::new();
    for record in records {
        let measures = record.measures()?;
        known.entry(Group::of(grain, &record)).or_default().insert(record.value, measures);
    }
    Ok(known)
}

/// Returns how many values these groups have.
async fn sizes<'a>(
    grain: Grain,
    groups: impl Iterator<Item = &'a Group>,
    connection: &mut PgConnection,
) -> Result<HashMap<Group, usize>, sqlx::Error> {
    let mut columns = GroupColumns::default();
    groups.for_each(|group| columns.push(group));
    let records = sqlx::query!(
        r#"/* recorder::rollups::sizes */
        select r.at, r.pool, r.dimension, count(*) as "values!"
        from unnest($2::timestamptz[], $3::text[], $4::text[]) as wanted (at, pool, dimension)
        join rollups r on r.grain = $1 and r.at = wanted.at and r.pool = wanted.pool and r.dimension = wanted.dimension
        group by r.at, r.pool, r.dimension"#,
        grain.name(),
        &columns.at,
        &columns.pool as &[&str],
        &columns.dimension as &[&str],
    )
    .fetch_all(connection)
    .await?;
    let sizes = records.into_iter().map(|record| {
        let group = Group { at: record.at, pool: record.pool, dimension: record.dimension };
        (group, usize::try_from(record.values).unwrap_or(usize::MAX))
    });
    Ok(sizes.collect())
}

async fn write(grain: Grain, rollups: &Rollups, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let mut columns = RollupColumns::default();
    for (group, values) in rollups {
        for (value, measures) in values {
            columns.push(group.at, [&group.pool, &group.dimension, value], measures);
        }
    }
    let sum = |sum: Sum| columns.sums[sum as usize].as_slice();
    sqlx::query!(
        r#"/* recorder::rollups::write */
        insert into rollups
            (grain, at, pool, dimension, value, succeeded, failed, cancelled, expired, dead, verdict_user, verdict_timeout,
             verdict_out_of_memory, verdict_device, verdict_infrastructure, lost, superseded, device_us, queue_us, input_bytes,
             output_bytes, stages, charged_us)
        select $1, new.* from unnest(
            $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
            $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[],
            $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bytea[],
            $23::bigint[]) as new
        on conflict (grain, dimension, at, pool, value) do update set
            succeeded = excluded.succeeded,
            failed = excluded.failed,
            cancelled = excluded.cancelled,
            expired = excluded.expired,
            dead = excluded.dead,
            verdict_user = excluded.verdict_user,
            verdict_timeout = excluded.verdict_timeout,
            verdict_out_of_memory = excluded.verdict_out_of_memory,
            verdict_device = excluded.verdict_device,
            verdict_infrastructure = excluded.verdict_infrastructure,
            lost = excluded.lost,
            superseded = excluded.superseded,
            device_us = excluded.device_us,
            queue_us = excluded.queue_us,
            input_bytes = excluded.input_bytes,
            output_bytes = excluded.output_bytes,
            stages = excluded.stages,
            charged_us = excluded.charged_us"#,
        grain.name(),
        &columns.at,
        &columns.pool as &[&str],
        &columns.dimension as &[&str],
        &columns.value as &[&str],
        sum(Sum::Succeeded),
        sum(Sum::Failed),
        sum(Sum::Cancelled),
        sum(Sum::Expired),
        sum(Sum::Dead),
        sum(Sum::VerdictUser),
        sum(Sum::VerdictTimeout),
        sum(Sum::VerdictOutOfMemory),
        sum(Sum::VerdictDevice),
        sum(Sum::VerdictInfrastructure),
        sum(Sum::Lost),
        sum(Sum::Superseded),
        sum(Sum::DeviceUs),
        sum(Sum::QueueUs),
        sum(Sum::InputBytes),
        sum(Sum::OutputBytes),
        &columns.stages,
        sum(Sum::ChargedUs),
    )
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(Default)]
struct GroupColumns<'a> {
    at: Vec<DateTime<Utc>>,
    pool: Vec<&'a str>,
    dimension: Vec<&'a str>,
}

impl<'a> GroupColumns<'a> {
    fn push(&mut self, group: &'a Group) {
        self.at.push(group.at);
        self.pool.push(&group.pool);
        self.dimension.push(&group.dimension);
    }
}
