//! Limits how much an executor child can take from its host. When memory runs out, the kernel kills it first. With the
//! emulated device, which runs untrusted kernels in the child itself, the child also has bounded memory, no files and
//! no network.
//!
//! A GPU's driver maps the device's memory and opens files and sockets of its own, so these other limits do not apply
//! to it.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getppid, getrlimit, setrlimit};

use super::CudaSpec;
use crate::{
    network,
    privileges::{self, PrivilegeError},
};

/// The child's `oom_score_adj`. The kernel kills a process with a higher score sooner; the worker and the machine's
/// services have 0 or less.
const OOM_SCORE: &str = "500";
/// Maximum host memory that the child may take after its device is open (programs, running blocks, buffers), in bytes.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Lets the kernel kill this process before the worker when memory runs out. The process must still own its files in
/// `/proc`.
pub(crate) fn give_way_when_memory_runs_out() {
    // If `/proc` is missing or read-only, the kernel chooses by size alone.
    drop(fs::write("/proc/self/oom_score_adj", OOM_SCORE));
}

/// Drops root and, if the device is emulated, leaves the host's network. If the kernel forbids the latter, as in many
/// containers, the child keeps its container's network.
pub(crate) fn leave_root_and_network(cuda: &CudaSpec, user: Option<&str>) -> Result<(), PrivilegeError> {
    if *cuda != CudaSpec::Emulated {
        return privileges::leave_root(user);
    }
    let parent = getppid();
    let closed = network::close_as_root();
    privileges::become_user(user)?;
    if !closed && network::close_in_a_user_namespace() {
        // The creator of a user namespace gets all capabilities in it.
        privileges::drop_capabilities()?;
        privileges::hide()?;
    }
    privileges::die_with(parent)
}

/// Limits the memory and files of a child with an emulated device, whose memory has already been reserved.
pub(super) fn bound_the_emulator() -> io::Result<()> {
    set(Resource::Fsize, 0)?;
    bound_memory(MEMORY_BYTES_MAX)
}

/// Limits the memory of a session with an emulated device, which takes its device memory later. The emulator's physical
/// memory is a file in memory that only grows, so files have no limit.
pub(crate) fn bound_an_emulated_session(device_bytes: u64) -> io::Result<()> {
    bound_memory(device_bytes.saturating_add(MEMORY_BYTES_MAX))
}

/// Limits the memory that the child may take from now on.
fn bound_memory(bytes: u64) -> io::Result<()> {
    match data_bytes() {
        Some(taken) => set(Resource::Data, taken.saturating_add(bytes)),
        None => Ok(()),
    }
}

/// Lowers a resource limit.
fn set(resource: Resource, bytes: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(bytes, |most| most.min(bytes));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Returns the memory that counts against the limit, in bytes: private and writable, touched or not.
fn data_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
