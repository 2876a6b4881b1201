//! What an executor child may take of its host, beside its privileges: it gives way first when memory runs out, and the
//! emulated device, which runs untrusted kernels in the child itself, has bounded memory, no files and no network.
//!
//! A GPU's driver maps the device's memory and opens files and sockets of its own, so these bounds are not for it.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getppid, getrlimit, setrlimit};

use super::CudaSpec;
use crate::{
    network,
    privileges::{self, PrivilegeError},
};

/// The kernel kills a process with a higher score sooner. The worker and the machine's services have 0 or less.
const OOM_SCORE: &str = "500";
/// Memory of the host beyond what the child has reserved once its device is open: programs, blocks under way, buffers.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Lets the kernel kill this process before the worker when memory runs out. It must still own its files in `/proc`.
pub(super) fn give_way_when_memory_runs_out() {
    // Where `/proc` is not there or read-only, the kernel goes by size alone.
    drop(fs::write("/proc/self/oom_score_adj", OOM_SCORE));
}

/// Drops root and, if the device is emulated, leaves the host's network. Where the kernel forbids the latter, as many
/// containers do, the child keeps the network of its container.
pub(super) fn leave_root_and_network(cuda: &CudaSpec, user: Option<&str>) -> Result<(), PrivilegeError> {
    if *cuda != CudaSpec::Emulated {
        return privileges::leave_root(user);
    }
    let parent = getppid();
    let closed = network::close_as_root();
    privileges::become_user(user)?;
    if !closed && network::close_in_a_user_namespace() {
        // The creator of a user namespace has all capabilities in it.
        privileges::drop_capabilities()?;
        privileges::hide()?;
    }
    privileges::die_with(parent)
}

/// Bounds the memory and the files of a child with an emulated device, whose memory has been reserved.
pub(super) fn bound_the_emulator() -> io::Result<()> {
    set(Resource::Fsize, 0)?;
    match data_bytes() {
        Some(taken) => set(Resource::Data, taken + MEMORY_BYTES_MAX),
        None => Ok(()),
    }
}

/// Lowers a limit.
fn set(resource: Resource, bytes: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(bytes, |most| most.min(bytes));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// The memory that counts against the limit: what is private and writable, touched or not.
fn data_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
