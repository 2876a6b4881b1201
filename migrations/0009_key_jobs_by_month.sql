-- No partition grows without bound any more, and making one never scans a large table.
--
-- Until now every job whose id has no time went into the default partition, and Postgres scans that one, with everybody locked out, whenever
-- a month is attached beside it. From here on such a job belongs to the month of its first event, which this table remembers, because
-- later events don't tell it. A job that stands here has its row under this time, whatever its id says. Rows may go with the
-- partition of their month.
create table job_keys (
    job_id uuid        primary key,
    id_at  timestamptz not null
);

-- The rows of before stay where they are, in a partition with bounds. This scans it, once, with everybody locked out; recorders try again
-- until it is done.
alter table jobs detach partition jobs_default;
alter table jobs_default rename to jobs_untimed;
create temporary table far_off on commit drop as select * from jobs_untimed where id_at >= '2000-01-01T00:00:00Z';
delete from jobs_untimed where job_id in (select job_id from far_off) and id_at >= '2000-01-01T00:00:00Z';
alter table jobs attach partition jobs_untimed for values from (minvalue) to ('2000-01-01T00:00:00Z');

-- For what a recorder of the release before writes of ids whose time is far off, and for such rows of before: few.
create table jobs_default partition of jobs default;
insert into jobs select * from far_off;

-- A recorder of the release before may be at work during the migration, and looks for no keys. What it writes is noted here, so that
-- recorders of this release find it. What these wrote first it must not write once more elsewhere: it gets a conflict, tries again,
-- and records nothing more of that job before it is replaced.
create function note_job_key() returns trigger language plpgsql as $$
begin
    insert into job_keys (job_id, id_at) values (new.job_id, new.id_at) on conflict (job_id) do nothing;
    if exists (select from job_keys where job_id = new.job_id and id_at <> new.id_at) then
        raise exception 'job % is recorded under another month; upgrade the recorder', new.job_id using errcode = '40001';
    end if;
    return new;
end
$$;
create trigger note_job_key before insert on jobs_untimed for each row execute function note_job_key();
create trigger note_job_key before insert on jobs_default for each row execute function note_job_key();

-- As before, but the second of two recorders that want the same month at once sees that the first has made it: a name that was looked up
-- before the wait is still taken for unknown after it, a query is not.
create or replace function ensure_jobs_partition(at timestamptz) returns boolean language plpgsql as $$
declare
    month_start timestamptz := date_trunc('month', at at time zone 'UTC') at time zone 'UTC';
    month_end   timestamptz := (date_trunc('month', at at time zone 'UTC') + interval '1 month') at time zone 'UTC';
    partition   text        := 'jobs_' || to_char(at at time zone 'UTC', 'YYYY_MM');
begin
    if to_regclass(partition) is not null then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtext('gpufleet.ensure_jobs_partition'));
    if exists (select from pg_inherits join pg_class on pg_class.oid = inhrelid
               where inhparent = 'jobs'::regclass and relname = partition) then
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
