//! The CPU time and the context switches of each part of the system, read from `/proc` for its process tree.

use std::{
    collections::BTreeMap,
    fs,
    ops::{AddAssign, Sub},
    path::Path,
    time::Duration,
};

/// The unit of times in `/proc/PID/stat`. The kernel fixes it at 100 per second for user programs, whatever its own
/// clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// A part of the system that is counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Client,
    Broker,
    BareConsumer,
    Supervisor,
    Executor,
    Ledger,
    Postgres,
}

/// The processes of each part.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// Processes that count together with the processes below them, unless those are listed themselves.
    roots: Vec<(u32, Part)>,
    /// Processes that do not count themselves, only the processes below them.
    below: Vec<(u32, Part)>,
    /// Parts whose child processes count as another part.
    children: BTreeMap<Part, Part>,
}

/// What processes have used since they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Duration,
    /// How often a thread gave up its core to wait: its voluntary context switches. Threads that have ended do not
    /// count.
    pub switches: u64,
}

/// The usage of each part.
pub type Usages = BTreeMap<Part, Usage>;

#[derive(Debug, PartialEq)]
struct Stat {
    parent: u32,
    cpu: Duration,
}

impl Part {
    pub const ALL: [Self; 7] = [
        Self::Client,
        Self::Broker,
        Self::BareConsumer,
        Self::Supervisor,
        Self::Executor,
        Self::Ledger,
        Self::Postgres,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Broker => "broker",
            Self::BareConsumer => "bare consumer",
            Self::Supervisor => "supervisor",
            Self::Executor => "executor",
            Self::Ledger => "ledger",
            Self::Postgres => "postgres",
        }
    }
}

impl Parts {
    #[must_use]
    pub fn with(mut self, part: Part, pids: impl IntoIterator<Item = u32>) -> Self {
        self.roots.extend(pids.into_iter().map(|pid| (pid, part)));
        self
    }

    /// Counts the processes below this one as `part`, but not this process itself.
    #[must_use]
    pub fn with_below(mut self, part: Part, pid: u32) -> Self {
        self.below.push((pid, part));
        self
    }

    /// Counts the processes below those of `part` as `below`.
    #[must_use]
    pub fn with_children(mut self, part: Part, below: Part) -> Self {
        self.children.insert(part, below);
        self
    }

    pub fn usages(&self) -> Usages {
        let processes = processes();
        let mut usages = Usages::new();
        for (pid, stat) in &processes {
            if let Some(part) = self.part_of(*pid, &processes) {
                *usages.entry(part).or_default() += Usage { cpu: stat.cpu, switches: switches(*pid) };
            }
        }
        usages
    }

    /// Returns the current processes of all parts.
    pub fn pids(&self) -> Vec<u32> {
        let processes = processes();
        processes.keys().copied().filter(|pid| self.part_of(*pid, &processes).is_some()).collect()
    }

    fn part_of(&self, pid: u32, processes: &BTreeMap<u32, Stat>) -> Option<Part> {
        let mut ancestor = pid;
        loop {
            if let Some((root, part)) = self.roots.iter().find(|(root, _)| *root == ancestor) {
                return Some(if *root == pid { *part } else { self.children.get(part).copied().unwrap_or(*part) });
            }
            let parent = processes.get(&ancestor)?.parent;
            if let Some((_, part)) = self.below.iter().find(|(above, _)| *above == parent) {
                return Some(*part);
            }
            // The parent's id may be larger than the child's if ids have wrapped, but every chain ends at 0.
            ancestor = if parent == 0 { return None } else { parent };
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.switches += other.switches;
    }
}

impl Sub for Usage {
    type Output = Self;

    /// The usage between two readings; nothing if a process or thread has ended in between.
    fn sub(self, before: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), switches: self.switches.saturating_sub(before.switches) }
    }
}

/// Returns the usage between two readings.
pub fn since(before: &Usages, after: &Usages) -> Usages {
    after.iter().map(|(part, after)| (*part, *after - before.get(part).copied().unwrap_or_default())).collect()
}

/// Returns the voluntary context switches of a process's threads.
fn switches(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| switches_of_thread(&task.path())).sum()
}

/// Returns the voluntary context switches of a thread, by its folder in `/proc`, unless it has ended meanwhile.
fn switches_of_thread(task: &Path) -> Option<u64> {
    const FIELD: &str = "\nvoluntary_ctxt_switches:";
    let status = fs::read_to_string(task.join("status")).ok()?;
    status.split_once(FIELD)?.1.lines().next()?.trim().parse().ok()
}

fn processes() -> BTreeMap<u32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            // Skips a process that has ended meanwhile.
            let stat = parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
            Some((pid, stat))
        })
        .collect()
}

/// Parses the fields after the name. The name in parentheses may contain anything, so the last parenthesis counts.
fn parse(stat: &str) -> Option<Stat> {
    let columns: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u32 = columns.get(11)?.parse::<u32>().ok()? + columns.get(12)?.parse::<u32>().ok()?;
    Some(Stat {
        parent: columns.get(1)?.parse().ok()?,
        cpu: Duration::from_secs_f64(f64::from(ticks) / TICKS_PER_SECOND),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_process_is_called() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 9 0 1";
        assert_eq!(parse(line), Some(Stat { parent: 7, cpu: Duration::from_millis(1750) }));
        assert_eq!(parse("42 (x"), None);
    }

    #[test]
    fn children_count_with_their_nearest_root() {
        let stat = |parent| Stat { parent, cpu: Duration::ZERO };
        let processes = BTreeMap::from([(1, stat(0)), (10, stat(1)), (11, stat(10)), (12, stat(11)), (13, stat(10))]);
        let supervisor = Some(Part::Supervisor);
        let parts = Parts::default()
            .with(Part::Supervisor, [11])
            .with(Part::Client, [10])
            .with_children(Part::Supervisor, Part::Executor);
        let part = |pid| parts.part_of(pid, &processes);
        assert_eq!(
            [part(10), part(11), part(12), part(13)],
            [Some(Part::Client), Some(Part::Supervisor), Some(Part::Executor), Some(Part::Client)]
        );
        assert_eq!(part(1), None);
        let below = Parts::default().with_below(Part::Supervisor, 10);
        let part = |pid| below.part_of(pid, &processes);
        assert_eq!([part(10), part(11), part(12), part(13)], [None, supervisor, supervisor, supervisor]);
    }

    #[test]
    fn this_process_has_spent_some_time() {
        let parts = Parts::default().with(Part::Client, [std::process::id()]);
        let before = parts.usages();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while since(&before, &parts.usages())[&Part::Client].cpu.is_zero() {
            assert!(std::time::Instant::now() < deadline);
        }
    }

    /// Counts this thread alone: those of other tests take their switches with them when they end.
    #[test]
    fn each_wait_of_a_thread_is_a_switch() {
        let switches = || switches_of_thread(Path::new("/proc/thread-self")).unwrap();
        let before = switches();
        (0..20).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
        assert!(switches() - before >= 20);
    }
}
