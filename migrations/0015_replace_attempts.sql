-- Gives the table of migration 13 the name `attempts`. A recorder of the release before can't write from here on: its statements name a key
-- without `id_at`. It returns its messages to the broker, which keeps them for the recorder of this release.

-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            lock table attempts, attempts_by_month in access exclusive mode;
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
drop table attempts;
drop function copy_attempt();
alter table attempts_by_month rename to attempts;
