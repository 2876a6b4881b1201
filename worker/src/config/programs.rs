//! What a pool lets its host programs do: `programs=2,program-isolation=podman,program-memory=64GiB`.

use std::{fmt, str::FromStr, time::Duration};

use super::size::ByteSize;

/// The host programs that a pool may run on this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramAllowance {
    /// Programs at a time, with those that wait here for a device; 0 if the pool runs none.
    pub count: u16,
    /// The longest time limit that a program may ask for.
    pub time_max: Duration,
    /// Whether programs may use the network.
    pub network: bool,
    pub isolation: Isolation,
    /// Memory of a program in bytes, with its files in memory. The default is [`memory_default`].
    pub memory: ProgramLimit,
    /// Processes and threads of a program. The default is [`PIDS_DEFAULT`].
    pub pids: ProgramLimit,
}

/// Where a pool's host programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// In an environment of the worker, in namespaces that the worker makes.
    #[default]
    Environment,
    /// In a container that podman makes from an image of the worker.
    Podman,
}

/// A limit that the kernel enforces for a program and all that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgramLimit {
    #[default]
    Default,
    Off,
    At(u64),
}

/// Default number of processes and threads of a program.
pub const PIDS_DEFAULT: u64 = 4096;
/// Part of the machine's memory that a program may have by default, in hundredths. The rest keeps the worker and the system alive.
const MEMORY_PERCENT: u64 = 80;
/// A smaller limit would end programs before they begin.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// A container has processes of its own beside those of the program.
const PIDS_MIN: u64 = 16;
/// The most that Linux can count.
const PIDS_MAX: u64 = 1 << 22;

impl Default for ProgramAllowance {
    fn default() -> Self {
        Self {
            count: 0,
            time_max: Duration::from_secs(24 * 3600),
            network: false,
            isolation: Isolation::default(),
            memory: ProgramLimit::Default,
            pids: ProgramLimit::Default,
        }
    }
}

impl ProgramAllowance {
    /// Returns whether the worker may start only if it can limit the pool's programs. Containers always have limits, unless they are off.
    /// Programs in environments must have those that the pool's settings name; the default limits apply where the machine has cgroups.
    pub fn insists_on_limits(&self) -> bool {
        let limits = [self.memory, self.pids];
        match self.isolation {
            Isolation::Environment => limits.iter().any(|limit| matches!(limit, ProgramLimit::At(_))),
            Isolation::Podman => limits.iter().any(|limit| *limit != ProgramLimit::Off),
        }
    }

    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory.or(memory_default())
    }

    /// The size of a container's `/dev/shm`, whose files are part of its memory. podman's default is too small for frameworks.
    pub fn shared_memory_bytes(&self) -> Option<u64> {
        self.memory_bytes().or_else(memory_default)
    }

    pub fn pids_max(&self) -> Option<u64> {
        self.pids.or(Some(PIDS_DEFAULT))
    }
}

impl ProgramLimit {
    fn or(self, default: Option<u64>) -> Option<u64> {
        match self {
            Self::Default => default,
            Self::Off => None,
            Self::At(limit) => Some(limit),
        }
    }

    pub(super) fn memory(value: &str) -> Option<Self> {
        Self::of(value, |value| {
            value.parse().ok().map(|ByteSize(bytes)| bytes).filter(|bytes| *bytes >= MEMORY_BYTES_MIN)
        })
    }

    pub(super) fn pids(value: &str) -> Option<Self> {
        Self::of(value, |value| value.parse().ok().filter(|pids| (PIDS_MIN..=PIDS_MAX).contains(pids)))
    }

    fn of(value: &str, parse: impl FnOnce(&str) -> Option<u64>) -> Option<Self> {
        if value == "off" { Some(Self::Off) } else { parse(value).map(Self::At) }
    }
}

/// Returns the default of `program-memory` in bytes: most of the machine's memory.
fn memory_default() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib << 10) / 100 * MEMORY_PERCENT)
}

impl FromStr for Isolation {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "environment" => Ok(Self::Environment),
            "podman" => Ok(Self::Podman),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "environment",
            Self::Podman => "podman",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_off() {
        assert_eq!(ProgramLimit::memory("64GiB"), Some(ProgramLimit::At(64 << 30)));
        assert_eq!(ProgramLimit::memory("off"), Some(ProgramLimit::Off));
        assert_eq!(ProgramLimit::pids("16"), Some(ProgramLimit::At(16)));
        assert_eq!([ProgramLimit::memory("15MiB"), ProgramLimit::memory("80%"), ProgramLimit::pids("0")], [None; 3]);
    }

    #[test]
    fn by_default_the_machine_keeps_a_fifth_of_its_memory() {
        let default = ProgramAllowance::default();
        let total = memory_default().unwrap() / MEMORY_PERCENT * 100;
        assert!(default.memory_bytes().unwrap() < total && default.pids_max() == Some(PIDS_DEFAULT));
        let off = ProgramAllowance { memory: ProgramLimit::Off, pids: ProgramLimit::Off, ..default };
        assert_eq!((off.memory_bytes(), off.pids_max()), (None, None));
    }

    #[test]
    fn a_container_has_its_limits_unless_they_are_switched_off() {
        let podman = ProgramAllowance { isolation: Isolation::Podman, ..ProgramAllowance::default() };
        assert!(podman.insists_on_limits() && !ProgramAllowance::default().insists_on_limits());
        assert!(!ProgramAllowance { memory: ProgramLimit::Off, pids: ProgramLimit::Off, ..podman }.insists_on_limits());
        assert!(ProgramAllowance { pids: ProgramLimit::At(99), ..ProgramAllowance::default() }.insists_on_limits());
    }
}
