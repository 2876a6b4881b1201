-- Attempts get partitions by month, as jobs have them, so that old months can be dropped and queries open few of them. Migrations 13 to 15 do
-- this while recorders and readers work: this one creates the new table and keeps it up to date by a trigger, the next one copies the rows in
-- short transactions, and the last one gives the new table the name of the old one.

-- The time that a job id determines, as `JobId::made_ms` in the code: of a UUIDv7 of the years 2020 to 2099 its own, of others 1970.
create function job_id_at(job_id uuid) returns timestamptz language sql immutable strict parallel safe as $$
    select case
        when substr(job_id::text, 15, 1) = '7' and ms >= 1577836800000 and ms < 4102444800000
        then to_timestamp(ms / 1000) + (ms % 1000) * interval '1 millisecond'
        else to_timestamp(0)
    end
    from (select ('x' || substr(replace(job_id::text, '-', ''), 1, 12))::bit(48)::bigint as ms) as id
$$;

create table attempts_by_month (
    like attempts including defaults including constraints,
    -- That of the job.
    id_at timestamptz not null,
    primary key (job_id, id_at, attempt)
) partition by range (id_at);

-- A partition for each one of `jobs`, with its bounds.
do $$
declare
    existing record;
begin
    for existing in
        select relname, pg_get_expr(relpartbound, pg_class.oid) as bounds
        from pg_inherits join pg_class on pg_class.oid = inhrelid
        where inhparent = 'jobs'::regclass
    loop
        execute format('create table %I partition of attempts_by_month %s',
                       regexp_replace(existing.relname, '^jobs_', 'attempts_'), existing.bounds);
    end loop;
end
$$;

-- Makes the partition of a month. As in migration 9, the default partition holds nothing of a range that is attached beside it.
create function make_month(parent regclass, name text, month_start timestamptz, month_end timestamptz, default_partition text)
returns void language plpgsql as $$
begin
    execute format('create table %I (like %s including all)', name, parent);
    execute format('lock table %I in access exclusive mode', default_partition);
    execute format(
        'with moved as (delete from %I where id_at >= %L and id_at < %L returning *) insert into %I select * from moved',
        default_partition, month_start, month_end, name);
    execute format('alter table %s attach partition %I for values from (%L) to (%L)', parent, name, month_start, month_end);
end
$$;

-- Makes the partitions of `jobs` and of `attempts` for the month of `at`. True when that of `jobs` was made. A recorder of the release before
-- calls it too, and then needs both.
create or replace function ensure_jobs_partition(at timestamptz) returns boolean language plpgsql as $$
declare
    month_start timestamptz := date_trunc('month', at at time zone 'UTC') at time zone 'UTC';
    month_end   timestamptz := (date_trunc('month', at at time zone 'UTC') + interval '1 month') at time zone 'UTC';
    month       text        := to_char(at at time zone 'UTC', 'YYYY_MM');
    attempts    regclass;
    made        boolean     := false;
begin
    if to_regclass('jobs_' || month) is not null and to_regclass('attempts_' || month) is not null then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtext('gpufleet.ensure_jobs_partition'));
    -- Found by name only after the wait, during which the last of these migrations may have renamed it.
    attempts := coalesce(to_regclass('attempts_by_month'), to_regclass('attempts'));
    -- A name that was looked up before the wait is still taken for unknown after it, a query is not.
    if not exists (select from pg_inherits join pg_class on pg_class.oid = inhrelid
                   where inhparent = 'jobs'::regclass and relname = 'jobs_' || month) then
        perform make_month('jobs', 'jobs_' || month, month_start, month_end, 'jobs_default');
        made := true;
    end if;
    if not exists (select from pg_inherits join pg_class on pg_class.oid = inhrelid
                   where inhparent = attempts and relname = 'attempts_' || month) then
        perform make_month(attempts, 'attempts_' || month, month_start, month_end, 'attempts_default');
    end if;
    return made;
end
$$;

-- What a recorder writes from here on is copied at once.
create function copy_attempt() returns trigger language plpgsql as $$
begin
    insert into attempts_by_month
    select new.*, coalesce((select id_at from job_keys where job_id = new.job_id), job_id_at(new.job_id))
    on conflict (job_id, id_at, attempt) do update set
        state = excluded.state, superseded = excluded.superseded, worker = excluded.worker, device = excluded.device,
        device_name = excluded.device_name, emulated = excluded.emulated, started_at = excluded.started_at,
        finished_at = excluded.finished_at, verdict = excluded.verdict, failure_code = excluded.failure_code,
        failure_message = excluded.failure_message, failure_detail = excluded.failure_detail,
        failure_line = excluded.failure_line, output_bytes = excluded.output_bytes, queue_us = excluded.queue_us,
        wait_us = excluded.wait_us, compile_us = excluded.compile_us, load_us = excluded.load_us,
        copy_in_us = excluded.copy_in_us, launches_us = excluded.launches_us, copy_out_us = excluded.copy_out_us,
        total_us = excluded.total_us, device_bytes_peak = excluded.device_bytes_peak,
        module_cached = excluded.module_cached, retry_at = excluded.retry_at, fetch_us = excluded.fetch_us,
        printf_output = excluded.printf_output, printf_dropped_bytes = excluded.printf_dropped_bytes;
    return null;
end
$$;
create trigger copy_attempt after insert or update on attempts for each row execute function copy_attempt();
