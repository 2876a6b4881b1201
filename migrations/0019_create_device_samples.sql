-- How devices fared over time: a row for each heartbeat, at most one in five seconds. Partitioned by day (UTC), so that old days are dropped
-- whole. There is no default partition: a recorder makes the days, and leaves out samples of others.
create table device_samples (
    worker              text        not null,
    device              integer     not null,
    -- By the worker's clock, rounded down to five seconds.
    at                  timestamptz not null,
    jobs_running        bigint,
    -- Declared by the jobs on the device.
    declared_bytes      bigint      not null,
    -- By all processes. This and the following ones are null if the worker does not report them.
    memory_used_bytes   bigint,
    utilization_percent integer,
    temperature_celsius integer,
    power_milliwatts    bigint,
    -- The samples of a device lie together in the index, and among those of all devices in the table. So the index has all columns.
    primary key (worker, device, at) include
        (jobs_running, declared_bytes, memory_used_bytes, utilization_percent, temperature_celsius, power_milliwatts)
) partition by range (at);

-- Makes the partition of a day. Returns whether it did.
create function ensure_samples_partition(day date) returns boolean language plpgsql as $$
declare
    partition text := 'device_samples_' || to_char(day, 'YYYY_MM_DD');
begin
    if to_regclass(partition) is not null then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtext('gpufleet.ensure_samples_partition'));
    if to_regclass(partition) is not null then
        return false;
    end if;
    execute format('create table %I (like device_samples including all)', partition);
    execute format('alter table device_samples attach partition %I for values from (%L) to (%L)', partition,
        day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
    return true;
end
$$;
