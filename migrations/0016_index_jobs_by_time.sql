-- no-transaction
-- The history pages by `id_at` instead of `created_at`, so that a page opens the newest months alone. What people ask for first has an index
-- that gives this order. States that are rare have smaller ones: most jobs succeed, and those are found by the others.
--
-- An index is built for one partition at a time, each in a transaction of its own, so that a recorder waits only for that of its month. If it is
-- interrupted, it starts again and skips what is there.
do $$
declare
    wanted    record;
    partition record;
    child     text;
begin
    if to_regprocedure('job_id_end(uuid)') is null then
        -- The last eight digits of an id, the last one first, as a number: ids with a common end are neighbours.
        create function job_id_end(job_id uuid) returns bigint language sql immutable strict parallel safe as
            'select (''x'' || reverse(right(job_id::text, 8)))::bit(32)::bigint';
    end if;
    -- The worker that reported the outcome. Null before that, and for jobs from before this migration.
    alter table jobs add column if not exists worker text;
    commit;
    for wanted in
        select * from (values
            ('jobs_time',         '(id_at, job_id)', ''),
            ('jobs_kernel',       '(kernel, id_at, job_id)', ''),
            ('jobs_pool',         '(pool, id_at, job_id)', ''),
            ('jobs_user',         '(user_id, id_at, job_id)', ''),
            ('jobs_worker',       '(worker, id_at, job_id)', ''),
            ('jobs_name',         '(name, id_at, job_id)', ''),
            ('jobs_state',        '(state, id_at, job_id)', 'where state <> ''succeeded'''),
            ('jobs_kernel_state', '(kernel, state, id_at, job_id)', 'where state <> ''succeeded'''),
            ('jobs_pool_state',   '(pool, state, id_at, job_id)', 'where state <> ''succeeded'''),
            ('jobs_user_state',   '(user_id, state, id_at, job_id)', 'where state <> ''succeeded'''),
            ('jobs_worker_state', '(worker, state, id_at, job_id)', 'where state <> ''succeeded'''),
            ('jobs_name_state',   '(name, state, id_at, job_id)', 'where state <> ''succeeded'''),
            ('jobs_id_end',       '(job_id_end(job_id), job_id)', '')
        ) as list (index, columns, condition)
    loop
        execute format('create index if not exists %I on only jobs %s %s', wanted.index, wanted.columns, wanted.condition);
        commit;
        for partition in
            select relname from pg_inherits join pg_class on pg_class.oid = inhrelid
            where inhparent = 'jobs'::regclass order by relname
        loop
            -- A partition that was made or worked on meanwhile has it.
            continue when exists (
                select from pg_index i join pg_inherits on inhrelid = i.indexrelid
                where i.indrelid = partition.relname::regclass and inhparent = wanted.index::regclass);
            child := partition.relname || substr(wanted.index, 5);
            execute format('create index if not exists %I on %I %s %s', child, partition.relname, wanted.columns, wanted.condition);
            execute format('alter index %I attach partition %I', wanted.index, child);
            commit;
        end loop;
    end loop;
    drop index if exists jobs_created, jobs_state_created, jobs_kernel_created, jobs_pool_created, jobs_labels;
    -- The keys of labels that have an index of their own, named by their number.
    create table if not exists label_keys (
        number integer primary key check (number between 1 and 8),
        key    text    not null unique
    );
end
$$
