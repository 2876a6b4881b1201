//! How podman is run: what the worker asks it at its start, and the container of a program.
//!
//! The container's own storage and state are in the program's folder and in memory that only the launcher sees. The images are those of the
//! machine's podman, which reads them from there. So nothing of a container can be left in the machine's podman.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use super::message::{ContainerSpec, InitSpec};

/// The working directory of programs in containers. The folder of their files is mounted there.
pub(super) const FILES: &str = "/job";
/// The folder of the driver in containers, if it is not NVIDIA's.
pub(super) const DRIVER: &str = "/gpufleet/driver";
/// Folders of podman's state, which is covered by one in memory. A runtime keeps its own beside.
pub(super) const STATE: [&str; 5] = ["/run/libpod", "/run/containers", "/run/runc", "/run/crun", "/dev/shm"];
/// Where podman writes the process id of its monitor, conmon.
pub(super) const MONITOR: &str = "/run/libpod/monitor.pid";
/// What separates podman's own output from the program's in the pipe that both write to.
pub(super) const OUTPUT_END: u8 = 0;
/// Maximum number of open files of a process.
const OPEN_FILES_MAX: u64 = 65536;
/// The only variables of the worker that podman has.
const PASSED_ON: [&str; 2] = ["PATH", "HOME"];
/// Maximum length of podman's message in an error.
const MESSAGE_BYTES_MAX: usize = 1000;

/// The podman of this machine, and where its images are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Podman {
    /// The program and the operator's options.
    command: Vec<String>,
    storage_driver: String,
    storage: PathBuf,
}

impl Podman {
    /// Asks podman where its images are, and whether it has these. The error is a sentence that says what to do.
    pub fn find(command: &[String], images: &[String]) -> Result<Self, String> {
        let shown = command.join(" ");
        let info = run(plain(command).args(["info", "--format", "{{.Store.GraphDriverName}}\n{{.Store.GraphRoot}}"]))
            .map_err(|problem| {
            format!("`{shown} info` failed: {problem}; install podman, or say with --podman how to run it")
        })?;
        let mut lines = info.lines();
        let (Some(storage_driver), Some(storage)) = (lines.next(), lines.next()) else {
            return Err(format!(
                "`{shown} info` did not say where the images are, but {info:?}; use podman 4 or later"
            ));
        };
        for image in images {
            if run(plain(command).args(["image", "exists", "--", image])).is_err() {
                return Err(format!(
                    "podman has no image {image}; get it with `{shown} pull {image}` or `{shown} load --input FILE`, or leave --image \
                     {image} out"
                ));
            }
        }
        Ok(Self { command: command.to_owned(), storage_driver: storage_driver.to_owned(), storage: storage.into() })
    }

    /// Returns a podman whose containers are in this folder.
    pub(super) fn within(&self, folder: &Path) -> Command {
        let mut podman = plain(&self.command);
        podman.args(["--log-level", "error", "--root"]).arg(folder).args(["--runroot", "/run/containers/storage"]);
        podman.args(["--tmpdir", "/run/libpod", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]);
        let images = format!("{}.imagestore={}", self.storage_driver, self.storage.display());
        podman.args(["--storage-driver", &self.storage_driver, "--storage-opt", &images]);
        podman
    }
}

/// Returns a podman that does not get the worker's variables.
fn plain(command: &[String]) -> Command {
    let (program, options) = command.split_first().expect("a command has a program");
    let mut podman = Command::new(program);
    podman.args(options).env_clear().stdin(Stdio::null());
    podman.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    podman
}

/// Runs a command of podman, and returns its output, or why it failed.
pub(super) fn run(podman: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = podman.output().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    match message(&String::from_utf8_lossy(&stderr)) {
        "" => Err(status.to_string()),
        said => Err(said.to_owned()),
    }
}

/// The end of podman's output, without the name of its level.
pub(super) fn message(output: &str) -> &str {
    let mut from = output.len().saturating_sub(MESSAGE_BYTES_MAX);
    while !output.is_char_boundary(from) {
        from += 1;
    }
    output[from..].trim().trim_start_matches("Error: ")
}

/// Appends the options of the container and its command. `pid` is the process whose PID namespace it has.
pub(super) fn create(podman: &mut Command, spec: &InitSpec, container: &ContainerSpec, user: (u32, u32), pid: u32) {
    let ContainerSpec { image, name, cgroup_parent, memory_bytes, pids, shm_bytes, .. } = container;
    podman.args(["create", "--name", name, "--pull", "never", "--entrypoint", "", "--conmon-pidfile", MONITOR]);
    // Output goes straight to the pipe, so that its order is kept.
    podman.args(["--log-driver", "passthrough", "--pid", &format!("ns:/proc/{pid}/ns/pid")]);
    // The launcher has its own copy of the machine's name. The UUID of an emulated device depends on it.
    podman.args(["--network", if spec.network { "host" } else { "none" }, "--uts", "host"]);
    podman.args(["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]);
    // The program's folder has no label that a container could use.
    podman.args(["--security-opt", "label=disable", "--user", &format!("{}:{}", user.0, user.1)]);
    podman.args(["--volume", &format!("{}:{FILES}:nosuid,nodev", spec.files.display()), "--workdir", FILES]);
    if let Some(folder) = &spec.driver_folder {
        podman.args(["--volume", &format!("{}:{DRIVER}:ro,nosuid,nodev", folder.display())]);
    }
    if let Some(gpu) = &spec.gpu {
        podman.args(["--device", gpu]);
    }
    if let Some(parent) = cgroup_parent {
        podman.args(["--cgroup-parent", parent]);
    }
    if let Some(bytes) = shm_bytes {
        podman.args(["--shm-size", &format!("{bytes}b")]);
    }
    podman.args(["--pids-limit", &pids.map_or("-1".to_owned(), |pids| pids.to_string())]);
    if let Some(bytes) = memory_bytes {
        podman.args(["--memory", &bytes.to_string()]);
    }
    for (limit, value) in limits(spec.file_bytes_max) {
        podman.args(["--ulimit", &format!("{limit}={value}:{value}")]);
    }
    for (name, value) in &spec.variables {
        podman.args(["--env", &format!("{name}={value}")]);
    }
    podman.arg("--").arg(image).args(&spec.command);
}

/// The limits of each process. podman's own defaults may be above those of the worker, which the kernel refuses.
fn limits(file_bytes_max: u64) -> [(&'static str, String); 4] {
    let highest = |resource| getrlimit(resource).maximum;
    let files = highest(Resource::Nofile).map_or(OPEN_FILES_MAX, |most| most.min(OPEN_FILES_MAX));
    // The cgroup limits processes; the user's number counts those of other programs too.
    let processes = highest(Resource::Nproc).map_or("-1".to_owned(), |most| most.to_string());
    let file_bytes = highest(Resource::Fsize).map_or(file_bytes_max, |most| most.min(file_bytes_max));
    [("nofile", files.to_string()), ("nproc", processes), ("fsize", file_bytes.to_string()), ("core", "0".to_owned())]
}

/// Returns a sentence for the user if the container's command could not be started because of the command itself.
pub(super) fn refusal(program: &str, image: &str, said: &str) -> Option<String> {
    let said = said.to_lowercase();
    if !said.contains("exec") {
        return None;
    }
    if said.contains("permission denied") {
        return Some(format!(
            "failed to start {program:?} in the image {image}: it is not executable; set its executable bit (chmod +x), or start it with \
             its interpreter"
        ));
    }
    let is_missing = said.contains("not found in $path") || said.contains("no such file or directory");
    is_missing.then(|| not_found(program, image))
}

/// What a user reads if the image has no such command.
pub(super) fn not_found(program: &str, image: &str) -> String {
    format!(
        "failed to start {program:?}: command not found in the image {image}; name a program of the image, or upload it and start it as \
         ./{}",
        program.rsplit('/').next().unwrap_or(program)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::program::message::Place;

    fn podman() -> Podman {
        Podman {
            command: vec!["podman".to_owned(), "--root".to_owned(), "/other".to_owned()],
            storage_driver: "overlay".to_owned(),
            storage: "/images".into(),
        }
    }

    fn arguments(change: impl FnOnce(&mut InitSpec)) -> String {
        let container = ContainerSpec {
            podman: podman(),
            image: "torch:2".to_owned(),
            name: "gpufleet-1".to_owned(),
            cgroup_parent: Some("/gpufleet-1".to_owned()),
            memory_bytes: None,
            shm_bytes: None,
            pids: Some(64),
        };
        let mut spec = InitSpec {
            command: vec!["python".to_owned(), "--rm".to_owned()],
            variables: BTreeMap::from([("A".to_owned(), "1 2".to_owned())]),
            download: Vec::new(),
            files: "/programs/1/files".into(),
            storage: "/programs/1/containers".into(),
            place: Place::Container(Box::new(container.clone())),
            readable: Vec::new(),
            devices: Vec::new(),
            gpu: None,
            driver_folder: None,
            network: false,
            user: None,
            file_bytes_max: 1 << 20,
        };
        change(&mut spec);
        let mut command = podman().within(Path::new("/programs/1/containers"));
        create(&mut command, &spec, &container, (65534, 65534), 7);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn the_container_has_the_files_the_device_and_nothing_else() {
        let words = arguments(|spec| spec.gpu = Some("nvidia.com/gpu=GPU-1".to_owned()));
        for expected in [
            "--root /other --log-level error --root /programs/1/containers ",
            "--storage-opt overlay.imagestore=/images create",
            "--pull never --entrypoint ",
            "--pid ns:/proc/7/ns/pid --network none",
            "--read-only --cap-drop all --security-opt no-new-privileges",
            "--user 65534:65534 --volume /programs/1/files:/job:nosuid,nodev --workdir /job --device nvidia.com/gpu=GPU-1",
            "--cgroup-parent /gpufleet-1 --pids-limit 64 --ulimit nofile=",
            "fsize=1048576:1048576 --ulimit core=0:0 --env A=1 2 -- torch:2 python --rm",
        ] {
            assert!(words.contains(expected), "{expected}: {words}");
        }
        let emulated = arguments(|spec| (spec.driver_folder, spec.network) = (Some("/programs/1/driver".into()), true));
        assert!(emulated.contains("--volume /programs/1/driver:/gpufleet/driver:ro,nosuid,nodev"), "{emulated}");
        assert!(emulated.contains("--network host") && !emulated.contains("--device"), "{emulated}");
    }

    #[test]
    fn a_command_that_can_not_start_is_told_from_a_podman_that_can_not() {
        let of = |said| refusal("x", "torch:2", said);
        let runc =
            "runc create failed: unable to start container process: exec: \"x\": executable file not found in $PATH";
        let crun =
            "Error: crun: executable file `x` not found in $PATH: No such file or directory: OCI runtime attempted";
        for said in [runc, crun, "exec: \"./x\": stat ./x: no such file or directory"] {
            assert!(of(said).unwrap().contains("\"x\": command not found in the image torch:2"), "{said}");
        }
        assert!(of("exec: \"./x\": permission denied").unwrap().contains("chmod +x"));
        assert_eq!(of("Error: setrlimit RLIMIT_NOFILE: Operation not permitted"), None);
    }

    #[test]
    fn a_podman_that_is_not_there_is_named() {
        let problem = Podman::find(&["/no/podman".to_owned()], &[]).unwrap_err();
        assert!(problem.contains("`/no/podman info` failed") && problem.contains("--podman"), "{problem}");
        // A program that fails has said why.
        let problem = Podman::find(&["ls".to_owned(), "/no/folder".to_owned()], &[]).unwrap_err();
        assert!(problem.contains("/no/folder"), "{problem}");
    }
}
