//! Restricts the system calls to those that compiling needs, with seccomp.
//!
//! The list contains the calls of NVRTC 12.9 that were observed while it compiled or aborted, and those that the C library may use instead
//! on another kernel. Any other call fails with `EPERM`, and the library continues without its result, as it does when a file is missing.
//! Without `socket`, `clone` and `execve`, the compiler can't use the network or start a process or program.

use std::{collections::BTreeMap, env::consts::ARCH, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

const ALLOWED: &[libc::c_long] = &[
    // Files; Landlock restricts which.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fcntl,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    // Locks, time, and ids.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    // Signals to itself, and exit.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[libc::c_long] =
    &[libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[libc::c_long] = &[];

/// Restricts all threads. Returns whether the kernel and this architecture support it.
pub(super) fn close() -> io::Result<bool> {
    let Ok(architecture) = TargetArch::try_from(ARCH) else { return Ok(false) };
    let filter: BpfProgram = filter(architecture).map_err(io::Error::other)?;
    match seccompiler::apply_filter_all_threads(&filter) {
        Ok(()) => Ok(true),
        Err(seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
        {
            Ok(false)
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

fn filter(architecture: TargetArch) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_HERE).map(|call| (*call, Vec::new())).collect();
    // The process may read its limits but not change them.
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![equals(0, 0)?, equals(2, 0)?])?]);
    // An abort sends a signal to the process itself.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![equals(0, own)?])?]);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

fn equals(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value)
}
