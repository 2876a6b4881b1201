//! The parts that gpufleet's programs share: the filter of their log lines ([`log_filter`]), [`Secret`] for options with passwords, and
//! the text of an error with its causes ([`chain()`]). Programs that run until they are stopped also share [`logging`] and [`signals`].
//!
//! The read API, the console and the metrics of workers and recorders share an HTTP [`server`], which bounds connections and shares them
//! among callers. [`tokens`] and [`host`] check who asks and for which host, and [`problem`] is the form of an error, which clients read
//! too. TLS is left to a proxy.

mod chain;
#[cfg(feature = "server")]
pub mod host;
#[cfg(feature = "log")]
mod log_filter;
#[cfg(feature = "run")]
pub mod logging;
#[cfg(feature = "server")]
pub mod metrics;
#[cfg(feature = "server")]
mod places;
pub mod problem;
mod secret;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "run")]
pub mod signals;
#[cfg(feature = "server")]
pub mod tokens;

pub use chain::chain;
#[cfg(feature = "log")]
pub use log_filter::{LOG, log_filter};
pub use secret::Secret;
