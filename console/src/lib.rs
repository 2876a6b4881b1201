//! The console: a fleet in the browser.
//!
//! The program serves a web application and asks the read API of the ledger for it, so it needs no database password. What only the
//! broker knows, and the actions, go through the client of gpufleet; without a broker these parts of the pages say so.
//!
//! [`feed`] asks the read API, once a second for all viewers together and only while there are viewers, and `progress` follows running jobs
//! at the broker. [`access`] decides who may ask and what. [`state`] is what the handlers share, and [`server`] puts the parts together.
//! The console decides nothing about jobs and keeps nothing: everything that it shows is in the ledger or comes from the broker.

pub mod access;
pub mod actions;
pub mod assets;
pub mod broker;
pub mod command;
mod config;
mod downloads;
pub mod feed;
mod live;
mod options;
pub mod outputs;
mod progress;
pub mod server;
pub mod snapshot;
pub mod state;
pub mod upstream;

pub use command::{command, main};
