//! The control groups of host programs: the kernel limits the memory and the processes of each, and of all that it starts.
//!
//! With version 2 the groups are below the root, if the worker may make some there, and otherwise below the worker's own group. The worker
//! then moves itself into a group beside them, because a group with limited children may have no processes. With version 1 they are below
//! the root of each hierarchy.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError},
};

/// The group that the worker moves itself into.
const OWN_GROUP: &str = "gpufleet-worker";
const PROCESSES: &str = "cgroup.procs";
/// The limit of memory in version 1.
const LIMIT_1: &str = "memory.limit_in_bytes";

/// Where the worker makes groups.
#[derive(Debug)]
pub struct Cgroups {
    version: Version,
    /// The name of the group whose children are made, from the root of each hierarchy.
    base: PathBuf,
    /// Groups whose processes were still ending when they were to be removed.
    left: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum Version {
    One { memory: PathBuf, pids: PathBuf, all: Vec<PathBuf> },
    Two(PathBuf),
}

/// What a program may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramLimits {
    pub memory_bytes: Option<u64>,
    pub pids: Option<u64>,
}

/// The group of a program. Dropping it removes the group, with those in it.
#[derive(Debug)]
pub struct Cgroup {
    cgroups: Arc<Cgroups>,
    name: String,
}

impl Cgroups {
    /// Finds a group in which this worker may make others. The error is a sentence that says what is missing.
    pub fn find() -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("failed to read {path}: {error}"));
        Self::of(&read("/proc/self/mounts")?, &read("/proc/self/cgroup")?)
    }

    fn of(mounts: &str, own: &str) -> Result<Self, String> {
        let mounts: Vec<_> = mounts.lines().filter_map(hierarchy).collect();
        let with = |controller: &str| {
            let found = mounts
                .iter()
                .find(|(kind, _, options)| *kind == "cgroup" && options.split(',').any(|option| option == controller));
            found.map(|(_, mount, _)| mount.clone())
        };
        if let Some((_, mount, _)) = mounts.iter().find(|(kind, mount, _)| *kind == "cgroup2" && has_controllers(mount))
        {
            let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
            let base = base_of(mount, Path::new(own))?;
            return Ok(Self { version: Version::Two(mount.clone()), base, left: Mutex::default() });
        }
        match (with("memory"), with("pids")) {
            (Some(memory), Some(pids)) => {
                let all = mounts.into_iter().map(|(_, mount, _)| mount).collect();
                Ok(Self { version: Version::One { memory, pids, all }, base: PathBuf::new(), left: Mutex::default() })
            }
            _ => Err("this machine has no cgroup with the controllers memory and pids".to_owned()),
        }
    }

    /// Makes a group with limits.
    pub fn create(self: &Arc<Self>, name: &str, limits: ProgramLimits) -> io::Result<Cgroup> {
        let left = std::mem::take(&mut *self.left());
        left.iter().for_each(|name| self.remove(name));
        let group = Cgroup { cgroups: Arc::clone(self), name: name.to_owned() };
        group.folders().iter().try_for_each(fs::create_dir_all)?;
        group.set(limits)?;
        Ok(group)
    }

    /// Removes a group without processes, and those in it. One that has some is removed later.
    pub fn remove(&self, name: &str) {
        let hierarchies = match &self.version {
            Version::One { all, .. } => all.as_slice(),
            Version::Two(mount) => std::slice::from_ref(mount),
        };
        let removed: Vec<_> = hierarchies.iter().map(|mount| remove_tree(&mount.join(&self.base).join(name))).collect();
        if removed.iter().any(Result::is_err) {
            self.left().push(name.to_owned());
        }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cgroup {
    /// The files that a process writes `0` to, to enter the group.
    pub fn entrances(&self) -> Vec<PathBuf> {
        self.folders().into_iter().map(|folder| folder.join(PROCESSES)).collect()
    }

    /// The group's name from the root of each hierarchy.
    pub fn path(&self) -> String {
        Path::new("/").join(&self.cgroups.base).join(&self.name).display().to_string()
    }

    /// Whether this is version 2, in which a group counts what happens in those below it.
    pub fn is_unified(&self) -> bool {
        matches!(self.cgroups.version, Version::Two(_))
    }

    /// Returns whether the kernel has killed a process of the group because of the memory limit. Version 1 tells only whether the limit was
    /// reached, so a caller must know that a process was killed.
    pub fn was_out_of_memory(&self) -> bool {
        let memory = &self.folders()[0];
        let read = |name: &str| fs::read_to_string(memory.join(name)).unwrap_or_default();
        let number = |name: &str| read(name).trim().parse::<u64>().ok();
        match self.cgroups.version {
            Version::One { .. } => number("memory.max_usage_in_bytes") >= Some(number(LIMIT_1).unwrap_or(u64::MAX)),
            Version::Two(_) => {
                let events = read("memory.events");
                let mut killed = events.lines().filter_map(|line| line.strip_prefix("oom_kill "));
                killed.any(|count| count.parse::<u64>().is_ok_and(|count| count > 0))
            }
        }
    }

    /// The group's folders, that of the memory first.
    fn folders(&self) -> Vec<PathBuf> {
        let folder = |mount: &PathBuf| mount.join(&self.cgroups.base).join(&self.name);
        match &self.cgroups.version {
            Version::One { memory, pids, .. } => vec![folder(memory), folder(pids)],
            Version::Two(mount) => vec![folder(mount)],
        }
    }

    fn set(&self, limits: ProgramLimits) -> io::Result<()> {
        let folders = self.folders();
        let (memory, pids) = (&folders[0], &folders[folders.len() - 1]);
        if let Some(bytes) = limits.memory_bytes {
            let (limit, swap, swap_value) = match self.cgroups.version {
                Version::One { .. } => (LIMIT_1, "memory.memsw.limit_in_bytes", bytes),
                Version::Two(_) => ("memory.max", "memory.swap.max", 0),
            };
            fs::write(memory.join(limit), bytes.to_string())?;
            // A kernel without swap has no such file.
            match fs::write(memory.join(swap), swap_value.to_string()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if let Some(most) = limits.pids {
            fs::write(pids.join("pids.max"), most.to_string())?;
        }
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.cgroups.remove(&self.name);
    }
}

/// Returns kind, folder and options of a line of `/proc/mounts`, if it is of a hierarchy of groups.
fn hierarchy(line: &str) -> Option<(&str, PathBuf, &str)> {
    let mut fields = line.split_whitespace().skip(1);
    let (folder, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    matches!(kind, "cgroup" | "cgroup2").then(|| (kind, folder.into(), options))
}

fn has_controllers(group: &Path) -> bool {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    ["memory", "pids"].iter().all(|needed| controllers.split_whitespace().any(|controller| controller == *needed))
}

/// Finds the group whose children can have limits, in version 2, and lets them.
fn base_of(mount: &Path, own: &Path) -> Result<PathBuf, String> {
    let enable = |group: &Path| fs::write(group.join("cgroup.subtree_control"), "+memory +pids");
    // The root of a container's view is a group like others.
    let is_root = !mount.join("cgroup.type").exists();
    if is_root && enable(mount).is_ok() {
        return Ok(PathBuf::new());
    }
    let group = mount.join(own);
    let moved = fs::create_dir_all(group.join(OWN_GROUP))
        .and_then(|()| fs::write(group.join(OWN_GROUP).join(PROCESSES), process::id().to_string()))
        .and_then(|()| enable(&group));
    moved.map(|()| own.to_owned()).map_err(|error| {
        format!(
            "the worker can't limit processes in its cgroup {}: {error}; run it as root, or as a service of its own with Delegate=memory pids",
            group.display()
        )
    })
}

fn remove_tree(group: &Path) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(group) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path())?;
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_version_2_are_below_the_root_or_below_the_workers_own() {
        let root = tempfile::tempdir().unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw,nosuid 0 0\n", root.path().display());
        assert!(Cgroups::of(&mounts, "0::/\n").unwrap_err().contains("no cgroup with"));
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        assert_eq!(Cgroups::of(&mounts, "0::/a.service\n").unwrap().base, Path::new(""));
        let enabled = fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(enabled, "+memory +pids");
        fs::write(root.path().join("cgroup.type"), "domain\n").unwrap();
        let own = Arc::new(Cgroups::of(&mounts, "0::/a.service\n").unwrap());
        let moved = fs::read_to_string(root.path().join("a.service/gpufleet-worker/cgroup.procs")).unwrap();
        assert_eq!((own.base.as_path(), moved), (Path::new("a.service"), process::id().to_string()));
        let group = own.create("x", ProgramLimits { memory_bytes: Some(5), pids: Some(7) }).unwrap();
        let read = |name: &str| fs::read_to_string(root.path().join("a.service/x").join(name)).unwrap();
        assert_eq!((read("memory.max").as_str(), read("pids.max").as_str()), ("5", "7"));
        assert_eq!(group.path(), "/a.service/x");
        assert!(!group.was_out_of_memory());
        fs::write(root.path().join("a.service/x/memory.events"), "low 0\noom 2\noom_kill 1\n").unwrap();
        assert!(group.was_out_of_memory());
    }

    #[test]
    fn groups_of_version_1_are_in_the_hierarchies_of_their_controllers() {
        let mounts = "cgroup /c/memory cgroup rw,memory 0 0\ncgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup /c/pids cgroup rw,pids 0 0\ncgroup2 /c/unified cgroup2 rw 0 0\n";
        let cgroups = Arc::new(Cgroups::of(mounts, "4:memory:/x\n0::/\n").unwrap());
        let group = Cgroup { cgroups, name: "p".to_owned() };
        assert_eq!(group.folders(), [Path::new("/c/memory/p"), Path::new("/c/pids/p")]);
        assert!(Cgroups::of("cgroup /c/memory cgroup rw,memory 0 0\n", "").is_err());
    }
}
