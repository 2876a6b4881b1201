-- What waits for a session is explained with them: the sessions that a worker takes, and the memory that a session asks for.
--
-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            -- By its latest heartbeat: hosts, ports, and the number for each pool. Null if its pools take none.
            alter table workers add column sessions jsonb;
            -- Null for all other jobs, and for what was recorded before. So the rows that are there need no check.
            alter table jobs
                add column lease_bytes bigint,
                add constraint jobs_lease_bytes_is_size check (lease_bytes >= 0) not valid;
            exit;
        exception when lock_not_available then
            if try = 1000 then
                raise;
            end if;
            perform pg_sleep(0.1);
        end;
    end loop;
    perform set_config('lock_timeout', '0', true);
end
$$;
