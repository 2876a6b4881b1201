//! What the HTTP servers of gpufleet share: the read API of the ledger and the console.
//!
//! [`server`] bounds connections, [`tokens`] and [`host`] tell who asks and for which host, and [`problem`] is the form of an error, which
//! clients read too. There is no TLS here: a proxy has it.

#[cfg(feature = "server")]
pub mod host;
pub mod problem;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod tokens;
