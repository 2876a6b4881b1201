-- An open session has what it has done so far: `session`, and `charged_us`, the device time that statistics have counted for it already. A worker
-- reports them again and again. Its reports are numbered, because a late one must not replace a newer one; `session_sequence` is the number of
-- the last one, and null for an attempt without reports.
--
-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            alter table attempts
                drop constraint attempts_running_has_no_session,
                add column session_sequence integer,
                add constraint attempts_session_sequence_is_counted check (session_sequence >= 1) not valid;
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
