//! NVIDIA's device nodes after a fresh boot.
//!
//! Where nothing else at the start of a machine made them, the driver's first call does, by a helper that is root's to whoever runs it. A
//! child that has given up all ways to new privileges has it run in vain, so the supervisor, which has not, runs it before there is a child.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};
use tracing::{info, warn};

use crate::executor::spec::UNIFIED_MEMORY_NODE;

/// Where the driver itself looks for it.
const HELPER: &str = "/usr/bin/nvidia-modprobe";
const GPUS: &str = "/proc/driver/nvidia/gpus";
/// Loading the kernel's part of the driver takes seconds on a machine with many GPUs.
const DEADLINE: Duration = Duration::from_secs(60);

/// What there is of NVIDIA's on a machine.
#[derive(Debug)]
pub(super) struct Nodes {
    helper: PathBuf,
    unified_memory: PathBuf,
    /// A folder with an entry for each GPU, once the kernel's part of the driver is loaded.
    gpus: PathBuf,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { helper: HELPER.into(), unified_memory: UNIFIED_MEMORY_NODE.into(), gpus: GPUS.into() }
    }
}

impl Nodes {
    /// Makes the nodes if they are missing and can be made. Where that fails, the driver says what it lacks.
    pub(super) async fn make(&self) {
        if self.unified_memory.exists() || !self.helper.exists() {
            return;
        }
        // Only the first run shows how many GPUs there are.
        if self.run(0..1).await && self.gpus() > 1 {
            self.run(1..self.gpus()).await;
        }
    }

    fn gpus(&self) -> usize {
        fs::read_dir(&self.gpus).map_or(0, Iterator::count)
    }

    /// For GPUs by their minor numbers. Answers whether it went well.
    async fn run(&self, minors: std::ops::Range<usize>) -> bool {
        match timeout(DEADLINE, call(&self.helper, minors)).await {
            Ok(Ok(status)) if status.success() => {
                info!("nvidia's device nodes were missing and are made");
                return true;
            }
            Ok(Ok(status)) => warn!(%status, "nvidia's device nodes are missing, their helper failed"),
            Ok(Err(error)) => warn!(%error, "nvidia's device nodes are missing, their helper does not run"),
            Err(_) => {
                warn!(seconds = DEADLINE.as_secs(), "nvidia's device nodes are missing, their helper does not end")
            }
        }
        false
    }
}

/// Cancelling kills the helper.
async fn call(helper: &Path, minors: std::ops::Range<usize>) -> io::Result<std::process::ExitStatus> {
    let mut command = Command::new(helper);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.arg("-u");
    for minor in minors {
        command.arg("-c").arg(minor.to_string());
    }
    command.status().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose helper notes how it was called, and makes what it is asked for.
    fn machine(folder: &Path, gpus: usize) -> Nodes {
        let helper = folder.join("helper");
        let mut script =
            format!("#!/bin/sh\nPATH=/bin:/usr/bin\ncd {}\necho \"$@\" >>calls\n: >uvm\n", folder.display());
        for gpu in 0..gpus {
            script += &format!("mkdir -p gpus/{gpu}\n");
        }
        // By another process: a child that another test starts meanwhile would hold the file open, and what is open can't be run.
        let write = "printf %s \"$1\" >\"$2\" && chmod +x \"$2\"";
        let written = std::process::Command::new("sh").args(["-c", write, "sh", &script]).arg(&helper).status();
        assert!(written.unwrap().success());
        Nodes { helper, unified_memory: folder.join("uvm"), gpus: folder.join("gpus") }
    }

    fn calls(folder: &Path) -> String {
        fs::read_to_string(folder.join("calls")).unwrap_or_default()
    }

    #[tokio::test]
    async fn missing_nodes_are_made_for_every_gpu_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = machine(folder.path(), 3);
        nodes.make().await;
        assert_eq!(calls(folder.path()), "-u -c 0\n-u -c 1 -c 2\n");
        nodes.make().await;
        assert_eq!(calls(folder.path()).lines().count(), 2, "they are there");
    }

    #[tokio::test]
    async fn a_machine_without_the_helper_goes_on_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = machine(folder.path(), 1);
        fs::remove_file(&nodes.helper).unwrap();
        nodes.make().await;
        assert!(!nodes.unified_memory.exists());
    }
}
