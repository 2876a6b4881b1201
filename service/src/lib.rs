//! Code that gpufleet's programs share: the filter of their log lines ([`log_filter`]), and [`Secret`] for options with passwords. Those
//! that run until they are stopped also share [`logging`] and [`signals`].

#[cfg(feature = "log")]
mod log_filter;
#[cfg(feature = "run")]
pub mod logging;
mod secret;
#[cfg(feature = "run")]
pub mod signals;

#[cfg(feature = "log")]
pub use log_filter::{LOG, log_filter};
pub use secret::Secret;
