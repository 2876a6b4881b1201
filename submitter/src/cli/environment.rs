//! Every environment variable that the command reads, in one place.

/// Where the broker is: `amqp://user:password@host:port/vhost`.
pub const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
/// The folder of the blob store, which the workers see as well.
pub const BLOBS: &str = "GPUFLEET_BLOBS";
/// Where the ledger's database is: `postgres://user:password@host:port/database`.
pub const DATABASE_URL: &str = "GPUFLEET_DATABASE_URL";
/// The pool that jobs go to when none is named.
pub const POOL: &str = "GPUFLEET_POOL";
/// What the workers of the local fleet make task queues of.
pub const QUEUE_KIND: &str = "GPUFLEET_QUEUE_KIND";
/// Jobs do not carry the broker's user.
pub const NO_USER_ID: &str = "GPUFLEET_NO_USER_ID";
/// The state directory of the local fleet.
pub const LOCAL_DIR: &str = "GPUFLEET_LOCAL_DIR";
/// What is logged to stderr, as a tracing filter; nothing without it.
pub const LOG: &str = "GPUFLEET_LOG";
/// `dumb` for a terminal that can't go back on its line.
pub const TERM: &str = "TERM";
/// Set to anything but the empty text: no colours.
pub const NO_COLOR: &str = "NO_COLOR";

/// The table as `--help` shows it.
pub const TABLE: &str = "\
Environment:
  GPUFLEET_AMQP_URL      the broker, as --amqp-url
  GPUFLEET_QUEUE_KIND    what workers make task queues of, as --queue-kind of `gpufleet local up`
  GPUFLEET_NO_USER_ID    true for jobs that do not carry the broker's user, as --no-user-id
  GPUFLEET_BLOBS         the folder of the blob store, as --blobs
  GPUFLEET_DATABASE_URL  the ledger's database, as --database-url
  GPUFLEET_POOL          the pool that jobs go to, as --pool
  GPUFLEET_LOCAL_DIR     where the fleet of `gpufleet local` keeps its data, as --dir
  GPUFLEET_LOG           what the libraries log to stderr, such as info or gpufleet=debug
  NO_COLOR               no colours";

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
