-- One row for each job, written by the recorder alone, by upserts that give the same row in whatever order events arrive.
--
-- The table is partitioned by `id_at`, the time inside a UUIDv7 job id, so that the whole primary key follows from the id
-- and an event needs nothing else to find its row. Ids of other kinds carry no time and have 1970-01-01 there.
create table jobs (
    job_id       uuid        not null,
    id_at        timestamptz not null,
    -- What history sorts by: `id_at` where the id has a time, else the earliest time that any event named.
    created_at   timestamptz not null,
    state        text        not null,

    -- From JobInfo. All null while only the end of an attempt has arrived.
    pool         text,
    priority     text,
    name         text,
    labels       jsonb,
    program      text,
    kernel       text,
    input_bytes  bigint,
    client       text,
    -- By the producer's clock.
    submitted_at timestamptz,
    -- The broker had confirmed the task, by the producer's clock.
    confirmed_at timestamptz,

    -- The highest attempt heard of, 0 before any, and whether it has ended.
    attempt       integer    not null default 0,
    attempt_ended boolean    not null default false,
    -- The first start of any attempt.
    started_at    timestamptz,
    -- The attempt whose final outcome was recorded first. Never changed afterwards.
    final_attempt integer,
    finished_at   timestamptz,

    primary key (job_id, id_at),
    constraint jobs_state_known
        check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'expired', 'dead')),
    constraint jobs_running_has_started
        check (state <> 'running' or started_at is not null),
    constraint jobs_final_has_finished
        check ((state in ('queued', 'running')) = (finished_at is null)),
    constraint jobs_final_has_attempt
        check ((state in ('queued', 'running')) = (final_attempt is null)),
    constraint jobs_attempt_is_counted
        check (attempt >= 0 and final_attempt between 1 and attempt),
    constraint jobs_priority_known
        check (priority in ('high', 'normal', 'low')),
    constraint jobs_labels_is_object
        check (jsonb_typeof(labels) = 'object'),
    constraint jobs_input_bytes_is_size
        check (input_bytes >= 0)
) partition by range (id_at);

-- Ids without a time, and those whose time lies too far off to deserve a partition.
create table jobs_default partition of jobs default;

-- History pages backwards through these, with or without a filter in front.
create index jobs_created on jobs (created_at, job_id);
create index jobs_state_created on jobs (state, created_at, job_id);
create index jobs_kernel_created on jobs (kernel, created_at, job_id);
create index jobs_pool_created on jobs (pool, created_at, job_id);
create index jobs_labels on jobs using gin (labels jsonb_path_ops);

-- Makes the partition for the month of `at` unless it is there, and moves in what the default partition held of it.
-- True when it was made.
create function ensure_jobs_partition(at timestamptz) returns boolean language plpgsql as $$
declare
    month_start timestamptz := date_trunc('month', at at time zone 'UTC') at time zone 'UTC';
    month_end   timestamptz := (date_trunc('month', at at time zone 'UTC') + interval '1 month') at time zone 'UTC';
    partition   text        := 'jobs_' || to_char(at at time zone 'UTC', 'YYYY_MM');
begin
    if to_regclass(partition) is not null then
        return false;
    end if;
    -- Two recorders may want the same month at once; the second finds it made.
    perform pg_advisory_xact_lock(hashtext('gpufleet.ensure_jobs_partition'));
    if to_regclass(partition) is not null then
        return false;
    end if;
    execute format('create table %I (like jobs including all)', partition);
    -- The default partition must hold nothing of a range that is attached beside it, now and until the commit.
    lock table jobs_default in access exclusive mode;
    execute format(
        'with moved as (delete from jobs_default where id_at >= %L and id_at < %L returning *) insert into %I select * from moved',
        month_start, month_end, partition);
    execute format('alter table jobs attach partition %I for values from (%L) to (%L)', partition, month_start, month_end);
    return true;
end
$$;
