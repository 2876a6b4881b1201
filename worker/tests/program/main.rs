//! Tests of the processes of host programs, from the supervisor's side: output, files, stopping, and what a program can't reach.
//!
//! These tests start the worker's own binary. As root, programs run as `nobody`; otherwise in a user namespace. They use the machine's
//! `python3`, `sh`, `dd` and other core utilities, and for containers its podman, runc and busybox.

#[cfg(test)]
mod container;
#[cfg(test)]
mod containers;
#[cfg(test)]
mod containers_stopping;
#[cfg(test)]
mod files;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod network;
#[cfg(test)]
mod output;
#[cfg(test)]
mod running;
#[cfg(test)]
mod stopping;
