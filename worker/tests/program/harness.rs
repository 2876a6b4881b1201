//! Helpers that run programs in work folders of their own, and look at processes.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use gpufleet_worker::program::{HostError, HostEvent, HostProcess, Place, ProgramSpec};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

/// Longer than anything takes on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Maximum size of a program's files in these tests, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 8 << 20;

/// The user id of the system's user `nobody`, as which programs of a worker that is root run.
pub(crate) const NOBODY: u32 = 65534;

pub(crate) fn executable() -> PathBuf {
    env!("CARGO_BIN_EXE_gpufleet-worker").into()
}

pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// A work folder and an environment, and what runs there.
pub(crate) struct Work {
    folder: TempDir,
    pub(crate) spec: ProgramSpec,
    pub(crate) environment: PathBuf,
    pub(crate) executable: PathBuf,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) output: String,
    pub(crate) last: HostEvent,
}

impl Work {
    pub(crate) fn new(command: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (work, environment) = (folder.path().join("run"), folder.path().join("environment"));
        let driver = folder.path().join("driver");
        fs::create_dir(&driver).unwrap();
        fs::create_dir(&work).unwrap();
        fs::set_permissions(&work, Permissions::from_mode(0o700)).unwrap();
        fs::create_dir_all(environment.join("bin")).unwrap();
        let spec = ProgramSpec {
            command: command.iter().map(|part| (*part).to_owned()).collect(),
            variables: BTreeMap::new(),
            download: Vec::new(),
            folder: work,
            place: Place::Environment(environment.clone()),
            cgroup: Vec::new(),
            device_uuid: "GPU-1".to_owned(),
            // The emulated device, so that the tests also run on a machine with other GPUs.
            driver_folder: Some(driver),
            network: false,
            user: None,
            file_bytes_max: FILE_BYTES_MAX,
        };
        Self { folder, spec, environment, executable: executable() }
    }

    pub(crate) fn sh(script: &str) -> Self {
        Self::new(&["sh", "-c", script])
    }

    pub(crate) fn python(script: &str) -> Self {
        Self::new(&["python3", "-c", script])
    }

    pub(crate) fn download(mut self, globs: &[&str]) -> Self {
        self.spec.download = globs.iter().map(|glob| (*glob).to_owned()).collect();
        self
    }

    /// Returns a path beside the work folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes an executable file beside the work folder.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.beside(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub(crate) fn in_folder(&self, name: &str) -> PathBuf {
        self.spec.folder.join(name)
    }

    /// Writes the archive of the task's files. The names are not checked.
    pub(crate) fn upload(&self, entries: &[Entry<'_>]) {
        let mut archive = Builder::new(File::create(self.in_folder("upload.tar")).unwrap());
        for entry in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(entry.kind);
            header.set_mode(entry.mode);
            header.set_size(entry.content.len() as u64);
            let gnu = header.as_gnu_mut().unwrap();
            gnu.name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
            gnu.linkname[..entry.target.len()].copy_from_slice(entry.target.as_bytes());
            header.set_cksum();
            archive.append(&header, entry.content.as_bytes()).unwrap();
        }
        archive.finish().unwrap();
    }

    pub(crate) async fn try_start(&self) -> Result<HostProcess, HostError> {
        HostProcess::start_program(Some(&self.executable), &self.spec).await
    }

    pub(crate) async fn start(&self) -> HostProcess {
        self.try_start().await.expect("this machine isolates programs")
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self) -> Run {
        rest(&mut self.start().await).await
    }

    /// Runs the program to its end, which must be a success. Returns its output.
    pub(crate) async fn succeed(&self) -> String {
        let run = self.run().await;
        assert_eq!(run.exit_code(), Some(0), "{run:?}");
        run.output
    }

    /// Returns the files that were packed, with their modes.
    pub(crate) fn packed(&self) -> BTreeMap<String, (u32, String)> {
        let mut archive = tar::Archive::new(File::open(self.in_folder("files.tar")).unwrap());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let name = entry.path().unwrap().display().to_string();
            (name, (entry.header().mode().unwrap(), content))
        });
        entries.collect()
    }
}

/// An entry of an archive.
pub(crate) struct Entry<'a> {
    pub(crate) kind: EntryType,
    pub(crate) name: &'a str,
    pub(crate) target: &'a str,
    pub(crate) mode: u32,
    pub(crate) content: &'a str,
}

pub(crate) fn file<'a>(name: &'a str, mode: u32, content: &'a str) -> Entry<'a> {
    Entry { kind: EntryType::Regular, name, target: "", mode, content }
}

pub(crate) fn link<'a>(name: &'a str, target: &'a str) -> Entry<'a> {
    Entry { kind: EntryType::Symlink, name, target, mode: 0o777, content: "" }
}

impl Run {
    pub(crate) fn exit_code(&self) -> Option<i32> {
        match self.last {
            HostEvent::Ended { exit_code, .. } => exit_code,
            _ => None,
        }
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        match self.last {
            HostEvent::Ended { signal, .. } => signal,
            _ => None,
        }
    }

    pub(crate) fn packed(&self) -> Result<Option<u64>, String> {
        match &self.last {
            HostEvent::Ended { packed, .. } => packed.clone(),
            other => panic!("it did not end: {other:?}"),
        }
    }

    pub(crate) fn refusal(&self) -> &str {
        match &self.last {
            HostEvent::Refused(reason) => reason,
            other => panic!("it was not refused: {other:?}, {}", self.output),
        }
    }
}

pub(crate) async fn next(process: &mut HostProcess) -> HostEvent {
    tokio::time::timeout(DEADLINE, process.next()).await.expect("an event comes")
}

/// Returns the rest of the output, and the last event.
pub(crate) async fn rest(process: &mut HostProcess) -> Run {
    let mut output = Vec::new();
    loop {
        match next(process).await {
            HostEvent::Started => {}
            HostEvent::Output(piece) => output.extend(piece),
            last => return Run { output: String::from_utf8_lossy(&output).into_owned(), last },
        }
    }
}

/// Waits until the output has this text.
pub(crate) async fn output_has(process: &mut HostProcess, text: &str) {
    let mut output = String::new();
    while !output.contains(text) {
        match next(process).await {
            HostEvent::Started => {}
            HostEvent::Output(piece) => output.push_str(&String::from_utf8_lossy(&piece)),
            last => panic!("the program ended before it printed {text:?}: {last:?}, {output}"),
        }
    }
}

pub(crate) async fn poll_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the processes whose command line has this text.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_text = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    processes.filter(has_text).collect()
}

/// Returns the children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

pub(crate) fn kill(process: u32) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Returns a text that no other test has, to find processes by.
pub(crate) fn unique(folder: &Path) -> String {
    format!("unique-{}", folder.parent().unwrap().file_name().unwrap().display())
}
