//! The state directory: the data of a fleet on this machine, and the list of its processes.
//!
//! `processes/<name>` has the process id, start time and last signal of each process; `log/<name>.log` has its output.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use crate::{
    error::{FileContext as _, LocalError},
    guard::Guard,
};

/// The environment variable that marks every process of a state directory, so that all of them can be found.
pub const MARKER: &str = "GPUFLEET_LOCAL_STATE";

/// Maximum length of the path of a state directory. Paths of Unix sockets have at most 107 bytes; gpufleet's are at
/// most 25 bytes longer than the state directory.
const PATH_BYTES_MAX: usize = 80;

/// A directory with processes. The processes of an ephemeral one end when their owner ends, even if it is killed.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    logs: PathBuf,
    guard: Mutex<Option<Guard>>,
    is_ephemeral: bool,
}

impl StateDir {
    /// Creates a directory under the system's temporary one. When the owner ends or calls [`StateDir::close`], its
    /// processes are stopped and it is deleted.
    pub fn ephemeral() -> Result<Arc<Self>, LocalError> {
        Self::new_ephemeral(&std::env::temp_dir(), None)
    }

    /// Creates a directory as [`StateDir::ephemeral`] does, and keeps the logs in `logs`.
    pub fn ephemeral_with_logs(logs: &Path) -> Result<Arc<Self>, LocalError> {
        Self::new_ephemeral(&std::env::temp_dir(), Some(logs))
    }

    /// Opens the directory `path`, and creates it if it does not exist. Its processes keep running when the caller
    /// ends.
    pub fn persistent(path: &Path) -> Result<Arc<Self>, LocalError> {
        create_dir(path, directory_mode())?;
        let path = fs::canonicalize(path).at("resolve", path)?;
        let logs = path.join("log");
        Self::prepare(path, logs, false)
    }

    /// Opens the persistent directory `path`; `None` if it does not exist. Creates nothing.
    pub fn existing(path: &Path) -> Result<Option<Arc<Self>>, LocalError> {
        if !path.join("processes").is_dir() {
            return Ok(None);
        }
        Self::persistent(path).map(Some)
    }

    fn new_ephemeral(parent: &Path, logs: Option<&Path>) -> Result<Arc<Self>, LocalError> {
        let directory = tempfile::Builder::new()
            .prefix("gpufleet-")
            .permissions(fs::Permissions::from_mode(directory_mode()))
            .tempdir_in(parent)
            .at("create a directory in", parent)?;
        let logs = logs.map_or_else(|| directory.path().join("log"), Path::to_owned);
        let state = Self::prepare(directory.path().to_owned(), logs, true)?;
        // From here on the guard deletes the directory. Until here, an error would delete it.
        let _ = directory.keep();
        Ok(state)
    }

    fn prepare(path: PathBuf, logs: PathBuf, is_ephemeral: bool) -> Result<Arc<Self>, LocalError> {
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(LocalError::PathTooLong { path });
        }
        let guard = if is_ephemeral { Some(Guard::watch(&path)?) } else { None };
        create_dir(&path.join("processes"), 0o700)?;
        create_dir(&logs, 0o700)?;
        let logs = fs::canonicalize(&logs).at("resolve", &logs)?;
        Ok(Arc::new(Self { path, logs, guard: Mutex::new(guard), is_ephemeral }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn logs(&self) -> &Path {
        &self.logs
    }

    pub fn is_ephemeral(&self) -> bool {
        self.is_ephemeral
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    pub(crate) fn record(&self, name: &str) -> PathBuf {
        self.path.join("processes").join(name)
    }

    /// Returns the sorted names of the recorded processes: they were started, and no command has seen them end.
    pub fn recorded(&self) -> Result<Vec<String>, LocalError> {
        let directory = self.path.join("processes");
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory).at("list", &directory)? {
            names.push(entry.at("list", &directory)?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// A directory below this one that only the owner may enter.
    pub(crate) fn private_dir(&self, name: &str) -> Result<PathBuf, LocalError> {
        let path = self.path.join(name);
        create_dir(&path, 0o700)?;
        Ok(path)
    }

    /// Starts the guard of an ephemeral directory and waits for it. Does nothing for a persistent directory, or at a
    /// second call.
    pub async fn close(&self) -> Result<(), LocalError> {
        let guard = self.guard.lock().expect("no panic happens under this lock").take();
        match guard {
            Some(guard) => guard.finish().await,
            None => Ok(()),
        }
    }

    /// Returns the environment variable that marks a process of this directory, for other programs that must end with
    /// the fleet.
    pub fn marker(&self) -> (&'static str, &Path) {
        (MARKER, &self.path)
    }
}

/// If root starts the fleet, Postgres runs as another user, which must be able to enter the directory.
fn directory_mode() -> u32 {
    if is_root() { 0o711 } else { 0o700 }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn create_dir(path: &Path, mode: u32) -> Result<(), LocalError> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).at("create", path)
}

/// Returns the directory of `gpufleet local`: below the user's state folder, or for root in `/var/lib`, because other
/// users may not enter root's home. Other users must not be able to write to it, because commands read passwords from
/// it.
pub fn default_dir() -> Result<PathBuf, LocalError> {
    default_dir_of(is_root(), |name| std::env::var_os(name))
}

fn default_dir_of(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, LocalError> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_home = || absolute("HOME").map(|home| home.join(".local/state"));
    let of_root = || is_root.then(|| PathBuf::from("/var/lib"));
    let state = absolute("XDG_STATE_HOME").or_else(of_root).or_else(of_home);
    state.map(|state| state.join("gpufleet/local")).ok_or(LocalError::NoHome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_home_there_is_no_default() {
        let dir = |is_root, set: &str| default_dir_of(is_root, |name| (name == set).then(|| "/h".into())).ok();
        assert_eq!(dir(false, "XDG_STATE_HOME"), Some("/h/gpufleet/local".into()));
        assert_eq!(dir(false, "HOME"), Some("/h/.local/state/gpufleet/local".into()));
        assert_eq!(dir(true, "HOME"), Some("/var/lib/gpufleet/local".into()));
        assert_eq!(dir(false, "PATH"), None);
    }

    #[test]
    fn an_unusable_directory_is_deleted() {
        let scratch = tempfile::tempdir().unwrap();
        let deep = scratch.path().join("d".repeat(PATH_BYTES_MAX));
        create_dir(&deep, 0o700).unwrap();
        let error = StateDir::new_ephemeral(&deep, None).unwrap_err();
        assert!(matches!(error, LocalError::PathTooLong { .. }), "{error}");
        let no_folder = scratch.path().join("file");
        fs::write(&no_folder, "").unwrap();
        StateDir::new_ephemeral(scratch.path(), Some(&no_folder.join("log"))).unwrap_err();
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
        let mut left = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.all(|name| !name.to_string_lossy().starts_with("gpufleet-")));
    }
}
