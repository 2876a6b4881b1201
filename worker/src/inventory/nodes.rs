//! Creates NVIDIA's device nodes after a boot.
//!
//! If no boot service has created them, the driver creates them at its first call, through a helper with set-user-id root. A child that
//! can't gain privileges can't use that helper, but the supervisor can. So the supervisor runs the helper before it starts a child.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};
use tracing::{info, warn};

use crate::executor::UNIFIED_MEMORY_NODE;

/// Path at which the driver looks for the helper.
const HELPER: &str = "/usr/bin/nvidia-modprobe";
const DRIVER: &str = "/proc/driver/nvidia";
const DEVICES: &str = "/dev";
/// Time limit for a run of the helper. Loading the kernel module takes seconds on a machine with many GPUs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The paths of NVIDIA's driver on a machine.
#[derive(Debug)]
pub(super) struct Nodes {
    helper: PathBuf,
    /// The files of the kernel module in `/proc`, which exist once it is loaded.
    driver: PathBuf,
    devices: PathBuf,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { helper: HELPER.into(), driver: DRIVER.into(), devices: DEVICES.into() }
    }
}

impl Nodes {
    /// Creates missing nodes if possible. If that fails, the driver will report what is missing.
    pub(super) async fn make(&self) {
        if !self.helper.exists() {
            return;
        }
        let unified_memory = Path::new(UNIFIED_MEMORY_NODE).file_name().expect("it is a file");
        // The module lists the GPUs only once it is loaded, which this call does.
        if !self.devices.join(unified_memory).exists() && !self.run(&["-u".into(), "-c".into(), "0".into()]).await {
            return;
        }
        let gpus = self.gpus().into_iter().filter(|minor| !self.devices.join(format!("nvidia{minor}")).exists());
        let arguments: Vec<OsString> = gpus.flat_map(|minor| ["-c".into(), minor.to_string().into()]).collect();
        if !arguments.is_empty() {
            self.run(&arguments).await;
        }
        let slices = self.slices().into_iter().filter(|(minor, _)| !self.has_capability(*minor));
        let arguments: Vec<OsString> = slices.flat_map(|(_, access)| ["-f".into(), access.into()]).collect();
        if !arguments.is_empty() {
            self.run(&arguments).await;
        }
    }

    /// Returns the minor numbers of the GPUs.
    fn gpus(&self) -> Vec<u32> {
        let folders = entries(&self.driver.join("gpus"), "");
        folders.iter().filter_map(|folder| number_in(&folder.join("information"), "Device Minor:")).collect()
    }

    /// Returns the capability nodes that a process needs to open a MIG slice: one for its memory and one for its processors. Each has the
    /// minor number of the node and the file that contains the number.
    fn slices(&self) -> Vec<(u32, PathBuf)> {
        let gpus = entries(&self.driver.join("capabilities"), "gpu");
        let memories: Vec<PathBuf> = gpus.iter().flat_map(|gpu| entries(&gpu.join("mig"), "gi")).collect();
        let processors: Vec<PathBuf> = memories.iter().flat_map(|memory| entries(memory, "ci")).collect();
        let files = memories.into_iter().chain(processors).map(|folder| folder.join("access"));
        files.filter_map(|access| Some((number_in(&access, "DeviceFileMinor:")?, access))).collect()
    }

    fn has_capability(&self, minor: u32) -> bool {
        self.devices.join("nvidia-caps").join(format!("nvidia-cap{minor}")).exists()
    }

    /// Runs the helper. Returns whether it succeeded.
    async fn run(&self, arguments: &[OsString]) -> bool {
        match timeout(DEADLINE, call(&self.helper, arguments)).await {
            Ok(Ok(status)) if status.success() => {
                info!("created the missing NVIDIA device nodes");
                return true;
            }
            Ok(Ok(status)) => warn!(%status, "NVIDIA device nodes are missing, nvidia-modprobe failed"),
            Ok(Err(error)) => warn!(%error, "NVIDIA device nodes are missing, nvidia-modprobe did not start"),
            Err(_) => {
                warn!(seconds = DEADLINE.as_secs(), "NVIDIA device nodes are missing, nvidia-modprobe timed out")
            }
        }
        false
    }
}

/// Runs the helper and waits for its exit. Cancelling kills the helper.
async fn call(helper: &Path, arguments: &[OsString]) -> io::Result<std::process::ExitStatus> {
    let mut command = Command::new(helper);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.args(arguments).status().await
}

/// Returns the entries of a folder with this prefix, in order; none if the folder does not exist.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_wanted =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
    let mut found: Vec<PathBuf> = found.filter(is_wanted).collect();
    found.sort();
    found
}

/// Returns the number after a label, on a line of its own.
fn number_in(file: &Path, label: &str) -> Option<u32> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(label))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A helper that records its arguments and creates the requested nodes. After its first run, the machine lists its GPUs, the first with
    /// slices.
    const HELPER: &str = r#"#!/bin/sh
PATH=/bin:/usr/bin
cd "$(dirname "$0")"
echo "$@" >>calls
mkdir -p driver/capabilities/gpu0/mig/gi1/ci0 driver/capabilities/mig dev/nvidia-caps
echo "DeviceFileMinor: 12" >driver/capabilities/gpu0/mig/gi1/access
echo "DeviceFileMinor: 13" >driver/capabilities/gpu0/mig/gi1/ci0/access
for gpu in 0 1 3; do
    mkdir -p driver/gpus/0000:0$gpu:00.0
    printf 'Model: \t some GPU\nDevice Minor: \t %s\n' $gpu >driver/gpus/0000:0$gpu:00.0/information
done
while [ $# -gt 0 ]; do
    case $1 in
    -u) : >dev/nvidia-uvm ;;
    -c) : >dev/nvidia$2; shift ;;
    -f) : >dev/nvidia-caps/nvidia-cap$(sed 's/.*: //' "$2"); shift ;;
    esac
    shift
done
"#;

    fn machine(folder: &Path) -> Nodes {
        let helper = folder.join("helper");
        // Another process writes the file. If this one did, a child that another test starts at the same time would hold the file open, and
        // an open file can't be executed.
        let write = "printf %s \"$1\" >\"$2\" && chmod +x \"$2\"";
        let written = std::process::Command::new("sh").args(["-c", write, "sh", HELPER]).arg(&helper).status();
        assert!(written.unwrap().success());
        Nodes { helper, driver: folder.join("driver"), devices: folder.join("dev") }
    }

    fn calls(folder: &Path) -> String {
        let slice = folder.join("driver/capabilities/gpu0/mig/gi1");
        fs::read_to_string(folder.join("calls")).unwrap_or_default().replace(&slice.display().to_string(), "SLICE")
    }

    #[tokio::test]
    async fn missing_nodes_are_made_for_every_gpu_and_slice_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = machine(folder.path());
        nodes.make().await;
        assert_eq!(calls(folder.path()), "-u -c 0\n-c 1 -c 3\n-f SLICE/access -f SLICE/ci0/access\n");
        nodes.make().await;
        assert_eq!(calls(folder.path()).lines().count(), 3, "they are there");
        fs::remove_file(folder.path().join("dev/nvidia3")).unwrap();
        fs::remove_file(folder.path().join("dev/nvidia-caps/nvidia-cap13")).unwrap();
        nodes.make().await;
        assert!(calls(folder.path()).ends_with("\n-c 3\n-f SLICE/ci0/access\n"), "{}", calls(folder.path()));
    }

    #[tokio::test]
    async fn a_machine_without_the_helper_goes_on_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = machine(folder.path());
        fs::remove_file(&nodes.helper).unwrap();
        nodes.make().await;
        assert!(!nodes.devices.exists());
    }
}
