-- What a session did: numbers of processes, calls and bytes, times in microseconds, and how its command ended. Null for all other attempts, for
-- sessions that were never open, and for what was recorded before. So the rows that are there need no check.
--
-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            alter table attempts
                add column session jsonb,
                add constraint attempts_running_has_no_session check (finished_at is not null or session is null) not valid;
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
