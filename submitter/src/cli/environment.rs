//! Every environment variable that the command reads, in one place.

/// The URL of the broker: `amqp://user:password@host:port/vhost`.
pub const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
/// The folder of the blob store, which is shared with the workers.
pub const BLOBS: &str = "GPUFLEET_BLOBS";
/// The URL of the ledger's database: `postgres://user:password@host:port/database`.
pub const DATABASE_URL: &str = "GPUFLEET_DATABASE_URL";
/// The default pool of jobs.
pub const POOL: &str = "GPUFLEET_POOL";
/// The kind of the local fleet's task queues.
pub const QUEUE_KIND: &str = "GPUFLEET_QUEUE_KIND";
/// If set, jobs do not carry the broker's user.
pub const NO_USER_ID: &str = "GPUFLEET_NO_USER_ID";
/// The state directory of the local fleet.
pub const LOCAL_DIR: &str = "GPUFLEET_LOCAL_DIR";
/// The filter for logs on stderr. Without it there are no logs.
pub const LOG: &str = "GPUFLEET_LOG";
/// `dumb` for a terminal that can't move its cursor back.
pub const TERM: &str = "TERM";
/// If set to a text that is not empty, there are no colours.
pub const NO_COLOR: &str = "NO_COLOR";

/// The table as `--help` shows it.
pub const TABLE: &str = "\
Environment:
  GPUFLEET_AMQP_URL      URL of the broker, as --amqp-url
  GPUFLEET_DATABASE_URL  URL of the ledger's database, as --database-url
  GPUFLEET_BLOBS         folder of the blob store, as --blobs
  GPUFLEET_POOL          pool to run jobs in, as --pool
  GPUFLEET_NO_USER_ID    true to send jobs without the broker user's name, as --no-user-id
  GPUFLEET_QUEUE_KIND    kind of the local fleet's task queues, as --queue-kind of `gpufleet local up`
  GPUFLEET_LOCAL_DIR     folder of the local fleet, as --dir of `gpufleet local`
  GPUFLEET_LOG           log filter for stderr, such as info or gpufleet=debug [default: off]
  NO_COLOR               set to any value to turn colours off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_variable_of_ours() {
        for name in [AMQP_URL, QUEUE_KIND, NO_USER_ID, BLOBS, DATABASE_URL, POOL, LOCAL_DIR, LOG, NO_COLOR] {
            assert!(TABLE.contains(&format!("\n  {name} ")), "{name}");
        }
    }
}
