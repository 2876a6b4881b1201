//! Tests of the processes of sessions on the emulator: a gate, its engines, a client, and a program that uses the device
//! through the driver library.
//!
//! These tests start the worker's own binary.

#[cfg(test)]
mod client;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod program;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod use_of_device;
