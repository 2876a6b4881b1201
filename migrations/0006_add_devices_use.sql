-- When the latest heartbeat came here, by the database's clock: a worker's own may be wrong.
alter table workers add column heard_at timestamptz;
update workers set heard_at = last_seen_at;
alter table workers
    alter column heard_at set default now(),
    alter column heard_at set not null;

-- A worker beats every ten seconds; after three that are missing it is silent. Whether it still works is the broker's affair.
create view worker_hearing as
    select worker, not has_left and heard_at < now() - interval '30 seconds' as is_silent,
           -- Nobody tells any more how the attempts end that it had.
           has_left or heard_at < now() - interval '30 seconds' as is_unheard
    from workers;

-- How a device fares, by its worker's latest heartbeat. Null where nobody tells.
alter table devices
    -- Why no job runs on it any more.
    add column out_of_service      text,
    add column jobs_running        bigint,
    -- What each pool has on it: a list of objects with pool, jobs_running and memory_bytes.
    add column pools               jsonb,
    -- By whomever.
    add column memory_used_bytes   bigint,
    add column utilization_percent integer,
    -- nvml: a kernel of anybody ran. worker: a job of the worker was on the device.
    add column utilization_by      text,
    add column temperature_celsius integer,
    add column power_milliwatts    bigint,
    add constraint devices_pools_is_list check (jsonb_typeof(pools) = 'array'),
    add constraint devices_utilization_is_whole check (num_nulls(utilization_percent, utilization_by) in (0, 2));
