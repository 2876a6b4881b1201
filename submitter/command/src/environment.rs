//! The environment variables that the command reads.

/// The URL of the broker: `amqp://user:password@host:port/vhost`.
pub const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
/// The blob store that the workers share: a folder, or `s3://bucket/prefix`.
pub const BLOBS: &str = "GPUFLEET_BLOBS";
/// The URL of the ledger's database: `postgres://user:password@host:port/database`.
pub const DATABASE_URL: &str = "GPUFLEET_DATABASE_URL";
/// The URL of a standby of that database, for commands that only read.
pub const DATABASE_READ_URL: &str = "GPUFLEET_DATABASE_READ_URL";
/// The URL of a read API, for the same commands.
pub const API_URL: &str = "GPUFLEET_API_URL";
/// The token for the read API.
pub const API_TOKEN: &str = "GPUFLEET_API_TOKEN";
/// The default pool of jobs.
pub const POOL: &str = "GPUFLEET_POOL";
/// The profile that gives what options and the environment leave open.
pub const PROFILE: &str = "GPUFLEET_PROFILE";
/// The configuration file with the profiles.
pub const CONFIG: &str = "GPUFLEET_CONFIG";
/// The kind of the local fleet's task queues.
/// If true, jobs are sent without the name of the broker's user.
pub const NO_USER_ID: &str = "GPUFLEET_NO_USER_ID";
/// If true, jobs prefer workers that have their largest input.
pub const AFFINITY: &str = "GPUFLEET_AFFINITY";
/// The driver library for programs of `gpufleet run`.
pub const SESSION_LIBRARY: &str = "GPUFLEET_SESSION_LIBRARY";
/// The folder of the local fleet.
pub const LOCAL_DIR: &str = "GPUFLEET_LOCAL_DIR";
/// The variables that choose a fleet.
pub const OF_FLEET: [&str; 7] = [AMQP_URL, DATABASE_URL, DATABASE_READ_URL, API_URL, PROFILE, CONFIG, LOCAL_DIR];
/// `dumb` if the terminal can't move its cursor back.
pub const TERM: &str = "TERM";
/// Any value except the empty one turns colours off.
pub const NO_COLOR: &str = "NO_COLOR";

/// The table as `--help` shows it.
pub const TABLE: &str = "\
Environment:
  GPUFLEET_AMQP_URL           URL of the broker (--amqp-url)
  GPUFLEET_DATABASE_URL       URL of the ledger's database (--database-url)
  GPUFLEET_DATABASE_READ_URL  URL of a standby of it (--database-read-url)
  GPUFLEET_API_URL            URL of a read API to ask instead of the database (--api-url)
  GPUFLEET_API_TOKEN          token for the read API (--api-token)
  GPUFLEET_BLOBS              blob store: a folder or s3://BUCKET/PREFIX (--blobs)
  GPUFLEET_POOL               pool to run jobs in (--pool)
  GPUFLEET_AFFINITY           true: prefer workers with a job's largest input (submit --affinity)
  GPUFLEET_NO_USER_ID         true: send jobs without the broker user's name (--no-user-id)
  GPUFLEET_SESSION_LIBRARY    driver library for programs (run --library)
  GPUFLEET_PROFILE            profile of the configuration file to use (--profile)
  GPUFLEET_CONFIG             configuration file [default: ~/.config/gpufleet/config.toml]
  GPUFLEET_LOCAL_DIR          folder of the local fleet (local --dir)
  GPUFLEET_LOG                log filter for stderr, such as gpufleet=debug [default: off]
  NO_COLOR                    any value turns colours off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_variable_of_ours() {
        for name in [
            AMQP_URL,
            DATABASE_URL,
            DATABASE_READ_URL,
            API_URL,
            API_TOKEN,
            BLOBS,
            POOL,
            AFFINITY,
            NO_USER_ID,
            SESSION_LIBRARY,
            PROFILE,
            CONFIG,
            LOCAL_DIR,
            gpufleet_service::LOG,
            NO_COLOR,
        ] {
            assert!(TABLE.contains(&format!("\n  {name} ")), "{name}");
        }
    }
}
