//! Code that the HTTP servers of gpufleet share, which are the read API of the ledger and the console.
//!
//! [`server`] bounds connections, and [`places`] shares them among callers. [`tokens`] identifies the caller and [`host`] the requested
//! host. [`problem`] is the form of an error, which clients read too. The servers do not terminate TLS; a proxy does.

#[cfg(feature = "server")]
pub mod host;
#[cfg(feature = "places")]
pub mod places;
pub mod problem;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod tokens;
