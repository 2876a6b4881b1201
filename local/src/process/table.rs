//! The kernel's process table, as `/proc` shows it.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, kill_process, kill_process_group},
};

use super::Signal;
use crate::state::MARKER;

/// Identifies a process by id and start time, because the kernel reuses ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    pub pid: u32,
    /// Clock ticks since boot.
    pub started: u64,
}

struct Row {
    state: char,
    parent: u32,
    threads: u32,
    started: u64,
}

impl Identity {
    /// The process that has this id now.
    pub fn of(pid: u32) -> Option<Self> {
        row(pid).map(|row| Self { pid, started: row.started })
    }

    /// The process in a record, which has its process id, start time and signal.
    pub(crate) fn recorded(record: &Path) -> Option<Self> {
        let text = fs::read_to_string(record).ok()?;
        let mut words = text.split_whitespace();
        Some(Self { pid: words.next()?.parse().ok()?, started: words.next()?.parse().ok()? })
    }

    pub fn is_alive(&self) -> bool {
        row(self.pid).is_some_and(|row| row.started == self.started && row.is_alive())
    }

    /// The program's name and the process id, for an error message. A process can choose its name.
    pub(crate) fn described(&self) -> String {
        match fs::read_to_string(format!("/proc/{}/comm", self.pid)) {
            Ok(name) => format!("{} (process {})", name.trim_end(), self.pid),
            Err(_) => format!("process {}", self.pid),
        }
    }

    /// Whether the environment has a variable of this name. `false` if this user may not read it.
    pub fn has_variable(&self, name: &str) -> bool {
        let has_name =
            |entry: &[u8]| entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='));
        fs::read(format!("/proc/{}/environ", self.pid)).is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(has_name))
    }

    /// The time for which the process has run.
    pub fn age(&self) -> Option<Duration> {
        let uptime: f64 = fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
        let started = self.started as f64 / clock_ticks_per_second() as f64;
        Some(Duration::from_secs_f64((uptime - started).max(0.0)))
    }

    /// The time of the start, by the wall clock.
    pub fn since(&self) -> Option<SystemTime> {
        SystemTime::now().checked_sub(self.age()?)
    }

    /// Sends a signal, if the process id still belongs to this process.
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = pid(self.pid) else { return };
        if self.is_alive() {
            // That the process ended since the check is harmless: ids are not used again that soon.
            kill_process(pid, signal.number()).ok();
        }
    }
}

impl Row {
    /// A process whose first thread has ended is a zombie, but it keeps its sockets until its other threads have ended.
    fn is_alive(&self) -> bool {
        match self.state {
            'Z' => self.threads > 1,
            state => state != 'X',
        }
    }
}

/// A process group, with the process that leads it.
#[derive(Debug)]
pub struct Group(Option<Pid>);

impl Group {
    /// The group of a process that was started as a group leader and not waited for.
    pub fn led_by(pid: u32) -> Self {
        Self(self::pid(pid).filter(|pid| !pid.is_init()))
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It fails if the group is empty, which is harmless.
            kill_process_group(group, signal.number()).ok();
        }
    }

    /// Drops the group without killing its processes.
    pub fn release(mut self) {
        self.0 = None;
    }
}

/// Kills the whole group, so that a dropped command leaves no child process behind.
impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::Kill);
    }
}

/// None for zero and for numbers that no process has.
fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(number.try_into().ok()?)
}

/// Children of `pid` and their children, at this moment.
pub(super) fn descendants(pid: u32) -> Vec<Identity> {
    let mut children: HashMap<u32, Vec<Identity>> = HashMap::new();
    for pid in pids() {
        if let Some(row) = row(pid) {
            children.entry(row.parent).or_default().push(Identity { pid, started: row.started });
        }
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next].pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Every process with `name=value` in the environment that it was started with, as far as this user may see.
pub fn marked(name: &str, value: &str) -> Vec<Identity> {
    let entry = format!("{name}={value}");
    let has_entry = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|have| have == entry.as_bytes()))
    };
    pids().filter(has_entry).filter_map(Identity::of).filter(Identity::is_alive).collect()
}

/// Every process that belongs to the state directory.
pub(crate) fn of_state(directory: &Path) -> Vec<Identity> {
    marked(MARKER, &directory.to_string_lossy())
}

/// The process that listens on this loopback TCP port. `None` also if this user may not see its sockets.
pub(crate) fn listener(port: u16) -> Option<Identity> {
    let sockets: Vec<String> = ["tcp", "tcp6"].into_iter().flat_map(|family| listening_sockets(family, port)).collect();
    let holds_one = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    };
    if sockets.is_empty() { None } else { pids().find(holds_one).and_then(Identity::of) }
}

/// The sockets that listen on a port, as `/proc/PID/fd` names them.
fn listening_sockets(family: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let table = fs::read_to_string(format!("/proc/net/{family}")).unwrap_or_default();
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let listens = *fields.get(3)? == LISTEN && u16::from_str_radix(local_port, 16) == Ok(port);
        listens.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Every process of a program whose working directory is this one.
pub(crate) fn working_in(directory: &Path, program: &str) -> Vec<Identity> {
    let fits = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory)
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == program)
    };
    pids().filter(fits).filter_map(Identity::of).filter(Identity::is_alive).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn row(pid: u32) -> Option<Row> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain parentheses.
    let rest = &text[text.rfind(')')? + 1..];
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads = fields.nth(15)?.parse().ok()?;
    Some(Row { state, parent, threads, started: fields.nth(1)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_its_start_time() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(!Identity { started: me.started + 1, ..me }.is_alive());
    }

    #[test]
    fn a_listener_is_found_by_its_port() {
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(listener(port), Identity::of(std::process::id()));
        drop(socket);
        assert_eq!(listener(port), None);
    }

    #[test]
    fn a_zombie_with_threads_counts_as_alive() {
        let row = |state, threads| Row { state, parent: 1, threads, started: 0 };
        assert!(row('S', 1).is_alive() && row('Z', 2).is_alive());
        assert!(!row('Z', 1).is_alive() && !row('X', 1).is_alive());
        let me = super::row(std::process::id()).unwrap();
        let tasks = fs::read_dir(format!("/proc/{}/task", std::process::id())).unwrap().count();
        assert!(me.threads >= 1 && tasks >= 1 && me.started > 0, "{} of {tasks}", me.threads);
    }

    #[test]
    fn a_child_is_found_by_its_parent_and_by_its_marker() {
        use std::{io::Read as _, process::Stdio};
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo up; read _"]).env("GPUFLEET_TABLE_TEST", "yes");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The environment of a program can't be read in its first moment.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; "up\n".len()]).unwrap();
        let found = descendants(std::process::id());
        let by_marker = marked("GPUFLEET_TABLE_TEST", "yes");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().any(|identity| identity.pid == child.id()));
        assert!(by_marker.iter().any(|identity| identity.pid == child.id()));
    }

    #[test]
    fn dropping_a_group_kills_the_children_of_its_leader() {
        use std::{io::Read as _, os::unix::process::CommandExt as _, process::Stdio};
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]).process_group(0).stdout(Stdio::piped());
        let mut leader = command.spawn().unwrap();
        drop(Group::led_by(leader.id()));
        // The pipe ends when both the shell and its child have closed it.
        leader.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        assert!(!leader.wait().unwrap().success());
    }
}
