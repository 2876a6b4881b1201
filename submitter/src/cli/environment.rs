//! Every environment variable that the command reads, in one place.

/// Where the broker is: `amqp://user:password@host:port/vhost`.
pub const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
/// Where the ledger's database is: `postgres://user:password@host:port/database`.
pub const DATABASE_URL: &str = "GPUFLEET_DATABASE_URL";
/// The pool that jobs go to when none is named.
pub const POOL: &str = "GPUFLEET_POOL";
/// What the fleet's task queues are made of, as for its workers.
pub const QUEUE_KIND: &str = "GPUFLEET_QUEUE_KIND";
/// The state directory of the local fleet.
pub const LOCAL_DIR: &str = "GPUFLEET_LOCAL_DIR";
/// What is logged to stderr, as a tracing filter; warnings without it.
pub const LOG: &str = "GPUFLEET_LOG";
/// Set to anything: no colours.
pub const NO_COLOR: &str = "NO_COLOR";
