-- What a host program is, for those who look at its job later, and what workers offer for host programs.
--
-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            -- Command, environment or image, and the names of variables. Null for all other jobs, and for what was recorded before.
            alter table jobs add column host_program jsonb;
            -- By its latest heartbeat: for each pool the numbers, environments and images. Null if its pools take none.
            alter table workers add column programs jsonb;
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
