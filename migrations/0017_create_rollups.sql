-- Statistics of jobs that have ended, by hour and by day (UTC). A recorder counts an attempt in the transaction that records its end, and an end
-- is recorded once, so each attempt is counted exactly once. Jobs that ended before this migration are not counted.
create table rollups (
    grain      text        not null,
    -- The beginning of the hour or day in which the attempts ended.
    at         timestamptz not null,
    pool       text        not null,
    -- What the rows of this hour and pool are divided by: kernel, user, worker, device or label:KEY. Empty for the whole pool.
    dimension  text        not null,
    -- Empty if the attempts have none. '(other)' has the values that came after the first thousand.
    value      text        not null,

    -- Outcomes of jobs, and of those that did not succeed the verdicts.
    succeeded             bigint not null,
    failed                bigint not null,
    cancelled             bigint not null,
    expired               bigint not null,
    dead                  bigint not null,
    verdict_user          bigint not null,
    verdict_timeout       bigint not null,
    verdict_out_of_memory bigint not null,
    verdict_device        bigint not null,
    verdict_infrastructure bigint not null,
    -- Attempts that were lost, and attempts whose outcome came after that of another attempt. They are no outcomes.
    lost                  bigint not null,
    superseded            bigint not null,
    -- The time on the device of all attempts but the lost ones: superseded attempts used it too. A worker measures none for a lost attempt.
    device_us             bigint not null,
    -- The other sums are those of outcomes.
    queue_us              bigint not null,
    input_bytes           bigint not null,
    output_bytes          bigint not null,
    -- A DDSketch of the times of each stage: queue, compile, copy, kernel and total. The first byte is the version of the encoding.
    stages                bytea  not null,

    primary key (grain, dimension, at, pool, value),
    constraint rollups_grain_known check (grain in ('hour', 'day'))
);

-- The recorder looks here for hours that may go.
create index rollups_old_hours on rollups (at) where grain = 'hour';

-- What recorders have counted since a leader merged it into hours and days. Recorders only append, so they never wait for each other.
create table rollup_deltas (
    delta_id bigint generated always as identity primary key,
    like rollups
);
alter table rollup_deltas drop column grain;
