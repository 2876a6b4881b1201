//! The memory of a process, as the kernel reports it.

use std::fs;

/// Returns a field such as `VmRSS` or `VmHWM` of `/proc/PID/status`, in bytes. `None` if the process has ended.
pub fn memory_bytes(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim_start_matches(':').trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}
