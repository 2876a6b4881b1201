-- As for months: the second of two recorders that want the same day at once sees that the first has made it. A name that was looked up before
-- the wait is still taken for unknown after it, a query is not.
create or replace function ensure_samples_partition(day date) returns boolean language plpgsql as $$
declare
    partition text := 'device_samples_' || to_char(day, 'YYYY_MM_DD');
begin
    if to_regclass(partition) is not null then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtext('gpufleet.ensure_samples_partition'));
    if exists (select from pg_inherits join pg_class on pg_class.oid = inhrelid
               where inhparent = 'device_samples'::regclass and relname = partition) then
        return false;
    end if;
    execute format('create table %I (like device_samples including all)', partition);
    execute format('alter table device_samples attach partition %I for values from (%L) to (%L)', partition,
        day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
    return true;
end
$$;

-- Statistics read what is not merged yet by its dimension and time.
create index rollup_deltas_read on rollup_deltas (dimension, at);
