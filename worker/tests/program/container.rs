//! Programs in containers: podman isolates them, and the rest is as in environments. Only a worker that is root runs containers.

use std::{fs, path::Path, process::Command, sync::Arc};

use gpufleet_local::{ImageStore, images::BUSYBOX};
use gpufleet_worker::program::{Cgroup, Cgroups, ContainerSpec, Place, Podman, ProgramLimits};

use crate::harness::{Work, is_root};

/// Enough for a shell.
const SOME: ProgramLimits = ProgramLimits { memory_bytes: Some(256 << 20), pids: Some(64) };

/// A program in a container, and the cgroup that limits it.
pub(crate) struct InContainer {
    pub(crate) work: Work,
    pub(crate) cgroup: Cgroup,
    pub(crate) store: ImageStore,
}

impl InContainer {
    /// Returns a program in an image with a shell, or nothing if this user can't run containers.
    pub(crate) fn sh(script: &str) -> Option<Self> {
        Self::limited(&["sh", "-c", script], SOME)
    }

    pub(crate) fn limited(command: &[&str], limits: ProgramLimits) -> Option<Self> {
        if !is_root() {
            eprintln!("only root runs containers");
            return None;
        }
        let store = ImageStore::open(Path::new(env!("CARGO_TARGET_TMPDIR")).join("images")).unwrap();
        store.busybox().unwrap();
        let words: Vec<String> = store.podman().split(' ').map(str::to_owned).collect();
        let mut work = Work::new(command);
        let name = crate::harness::unique(&work.spec.folder);
        let cgroups = Arc::new(Cgroups::find().unwrap());
        let cgroup = cgroups.create(&name, limits).unwrap();
        work.spec.place = Place::Container(Box::new(ContainerSpec {
            podman: Podman::find(&words, &[BUSYBOX.to_owned()]).unwrap(),
            image: BUSYBOX.to_owned(),
            name,
            cgroup_parent: Some(cgroup.path()),
            memory_bytes: limits.memory_bytes.filter(|_| cgroup.is_unified()),
            shm_bytes: limits.memory_bytes,
            pids: limits.pids,
        }));
        Some(Self { work, cgroup, store })
    }

    /// Returns the containers in the machine's store, which must have none of these.
    pub(crate) fn recorded(&self) -> String {
        let podman = format!("{} ps --all --noheading", self.store.podman());
        let output = Command::new("sh").args(["-c", &podman]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the mounts of all processes that name the program's folder.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let folder = self.work.spec.folder.display().to_string();
        let tables = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("mounts"));
        let lines = tables.filter_map(|table| fs::read_to_string(table).ok()).flat_map(|table| {
            table.lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect::<Vec<_>>()
        });
        lines.collect()
    }
}
