-- New blobs are named by BLAKE3. Older ones, and those of producers in other languages, may be named by SHA-256. The rows that are there need
-- no check.
--
-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            alter table job_outputs
                drop constraint job_outputs_digest_is_sha256,
                add constraint job_outputs_digest_is_known check (digest ~ '^(blake3|sha256):[0-9a-f]{64}$') not valid;
            alter table job_inputs
                drop constraint job_inputs_digest_is_sha256,
                add constraint job_inputs_digest_is_known check (digest ~ '^(blake3|sha256):[0-9a-f]{64}$') not valid;
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
