//! What the HTTP servers of gpufleet share: the read API of the ledger and the console.
//!
//! [`server`] bounds connections, and [`places`] shares them among callers. [`tokens`] and [`host`] tell who asks and for which host, and
//! [`problem`] is the form of an error, which clients read too. There is no TLS here: a proxy has it.

#[cfg(feature = "server")]
pub mod host;
#[cfg(feature = "places")]
pub mod places;
pub mod problem;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod tokens;
