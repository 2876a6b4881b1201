//! One process of the fleet: started in a session of its own with a log file, recorded by id and start time, and
//! stopped only through that record. A reused process id is never signalled.

use std::{
    ffi::{OsStr, OsString},
    fmt, fs,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::{
    error::{FileContext as _, LocalError, LogTail},
    state::StateDir,
};

mod table;

pub use table::{Group, Identity, marked};
pub(crate) use table::{listener, of_state, working_in};

/// The interval at which a condition is checked.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// Time limit for the end of a killed process. It ends at once, unless the kernel is still freeing its memory.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

const LOG_MODE: u32 = 0o600;

/// Writes the record and then replaces itself by the program, so that the guard sees the record before the program
/// runs. It also sets the limit of open files, because Erlang is slow with very low and very high limits.
const LAUNCH: &str = r#"
record=$1 signal=$2; shift 2
started() { shift 19; echo "$1"; }
read -r stat < "/proc/$$/stat" && echo "$$ $(started ${stat##*) }) $signal" > "$record" || exit 1
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -H -n)"
exec "$@"
"#;

/// The signals that this crate sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Interrupt,
    Quit,
    Kill,
    Stop,
    Continue,
}

/// A program about to be started.
pub struct ProcessSpec {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, Option<OsString>)>,
    directory: PathBuf,
    abandon: Signal,
    user: Option<User>,
}

/// The user that a program runs as if root starts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// A process that was started by this process or by an earlier command. It may have ended.
#[derive(Debug, Clone)]
pub struct Process(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    identity: Identity,
    state: Arc<StateDir>,
    /// The child, if this process is its parent. Other processes are watched through `/proc`.
    child: Mutex<Option<Child>>,
    status: Mutex<Option<ExitStatus>>,
}

impl ProcessSpec {
    pub fn new(name: &str, program: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: PathBuf::from("/"),
            abandon: Signal::Terminate,
            user: None,
        }
    }

    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), None));
        self
    }

    pub fn directory(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    /// Sets the signal that the guard sends first when the owner has ended.
    pub fn abandon(mut self, signal: Signal) -> Self {
        self.abandon = signal;
        self
    }

    /// Runs the program as another user; only root can.
    pub fn user(mut self, user: Option<&User>) -> Self {
        self.user = user.cloned();
        self
    }

    /// Starts the program. Its output is appended to the log of its name.
    pub fn spawn(self, state: &Arc<StateDir>) -> Result<Process, LocalError> {
        let log_path = state.log(&self.name);
        let log = open_log(&log_path)?;
        let log_twin = log.try_clone().at("open", &log_path)?;
        let mut command = Command::new("setsid");
        command
            .args(["/bin/sh", "-c", LAUNCH, "gpufleet-launch"])
            .arg(state.record(&self.name))
            .arg(self.abandon.name());
        if let Some(user) = &self.user {
            command.arg("setpriv").args(user.setpriv());
        }
        command.arg(&self.program).args(&self.arguments).current_dir(&self.directory);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let (marker, path) = state.marker();
        command.env(marker, path).stdin(Stdio::null()).stdout(log).stderr(log_twin);
        let child = command.spawn().map_err(|source| LocalError::Spawn { name: self.name.clone(), source })?;
        let identity = Identity::of(child.id()).ok_or_else(|| LocalError::Spawn {
            name: self.name.clone(),
            source: std::io::Error::other("the process exited at once"),
        })?;
        tracing::debug!(name = self.name, pid = identity.pid, "process started");
        Ok(Process(Arc::new(Inner {
            name: self.name,
            identity,
            state: Arc::clone(state),
            child: Mutex::new(Some(child)),
            status: Mutex::new(None),
        })))
    }
}

/// Only the owner may read a log, because it names jobs and quotes their programs. An earlier release made it readable by everyone.
fn open_log(path: &Path) -> Result<fs::File, LocalError> {
    let log = fs::OpenOptions::new().create(true).append(true).mode(LOG_MODE).open(path).at("open", path)?;
    log.set_permissions(fs::Permissions::from_mode(LOG_MODE)).at("change the mode of", path)?;
    Ok(log)
}

/// `Debug` leaves out the values of the environment, because they may be passwords.
impl fmt::Debug for ProcessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("ProcessSpec")
            .field("name", &self.name)
            .field("program", &self.program)
            .field("arguments", &self.arguments)
            .field("environment", &names)
            .field("directory", &self.directory)
            .field("abandon", &self.abandon)
            .field("user", &self.user)
            .finish()
    }
}

impl User {
    /// The user of that name, if the machine has one.
    pub fn named(name: &str) -> Option<Self> {
        let users = fs::read_to_string("/etc/passwd").ok()?;
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then_some(())?;
            Some(Self { name: name.to_owned(), uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
        })
    }

    /// The arguments of `setpriv` that make a command run as this user.
    pub(crate) fn setpriv(&self) -> [String; 4] {
        [format!("--reuid={}", self.uid), format!("--regid={}", self.gid), "--init-groups".to_owned(), "--".to_owned()]
    }
}

/// Kills processes that nothing else waits for, and waits until they have ended.
pub(crate) async fn kill_all(strays: &[Identity]) {
    strays.iter().for_each(|stray| stray.signal(Signal::Kill));
    let deadline = Instant::now() + KILLED_WITHIN;
    while let Some(left) = strays.iter().find(|stray| stray.is_alive()) {
        if Instant::now() >= deadline {
            tracing::warn!(process = left.described(), "killed process has not ended");
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

impl Process {
    /// The process that was recorded under this name, if it still runs.
    pub fn attach(state: &Arc<StateDir>, name: &str) -> Option<Self> {
        let identity = Identity::recorded(&state.record(name))?;
        let inner = Inner {
            name: name.to_owned(),
            identity,
            state: Arc::clone(state),
            child: Mutex::new(None),
            status: Mutex::new(None),
        };
        let process = Self(Arc::new(inner));
        process.is_alive().then_some(process)
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn pid(&self) -> u32 {
        self.0.identity.pid
    }

    pub fn log(&self) -> PathBuf {
        self.0.state.log(&self.0.name)
    }

    pub fn log_tail(&self) -> LogTail {
        LogTail::read(&self.log())
    }

    /// Whether the process runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        let mut child = self.0.child.lock().expect("no panic happens under this lock");
        if let Some(owned) = child.as_mut() {
            match owned.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) => *self.0.status.lock().expect("no panic happens under this lock") = Some(status),
                Err(_) => {}
            }
            *child = None;
            return false;
        }
        self.0.identity.is_alive()
    }

    /// The exit status, if the process has ended and this process is its parent.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.is_alive();
        *self.0.status.lock().expect("no panic happens under this lock")
    }

    /// Sends a signal, if the process still runs.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            self.0.identity.signal(signal);
        }
    }

    /// Suspends the process and its descendants.
    pub fn pause(&self) {
        self.signal_tree(Signal::Stop);
    }

    pub fn resume(&self) {
        self.signal_tree(Signal::Continue);
    }

    /// Kills the process with SIGKILL, but not its descendants, and waits until it has ended.
    pub async fn kill9(&self) -> Result<(), LocalError> {
        self.signal(Signal::Kill);
        self.gone(KILLED_WITHIN).await
    }

    /// Kills the process and all of its descendants.
    pub async fn kill_tree(&self) -> Result<(), LocalError> {
        self.signal_tree(Signal::Kill);
        self.gone(KILLED_WITHIN).await
    }

    /// Sends `signal` and waits for `grace`. Then kills the process with its descendants. Returns `false` if it had to
    /// be killed.
    pub async fn stop(&self, signal: Signal, grace: Duration) -> Result<bool, LocalError> {
        self.signal(signal);
        if self.wait(grace).await {
            return Ok(true);
        }
        tracing::warn!(name = self.0.name, pid = self.pid(), "process did not stop within its grace period");
        self.kill_tree().await.map(|()| false)
    }

    /// Waits at most this long until the process has ended. Returns whether it has. Cancelling the future is harmless.
    pub async fn wait(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        self.forget();
        true
    }

    /// Waits until `ready` returns true. It is an error if the process ends or the time passes first.
    pub(crate) async fn ready(&self, within: Duration, mut ready: impl AsyncFnMut() -> bool) -> Result<(), LocalError> {
        let deadline = Instant::now() + within;
        loop {
            if ready().await {
                return Ok(());
            }
            if !self.is_alive() {
                let outcome = self.exit_status().map_or_else(|| "unknown".to_owned(), |status| status.to_string());
                self.forget();
                return Err(LocalError::Ended { name: self.0.name.clone(), outcome, tail: self.log_tail() });
            }
            if Instant::now() >= deadline {
                return Err(LocalError::NotReady {
                    name: self.0.name.clone(),
                    seconds: within.as_secs(),
                    tail: self.log_tail(),
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until `ready` returns true, for a process of an earlier command. Returns `false` if the process ends before it is ready.
    pub(crate) async fn ready_or_ended(
        &self,
        within: Duration,
        ready: impl AsyncFnMut() -> bool,
    ) -> Result<bool, LocalError> {
        match self.ready(within, ready).await {
            Ok(()) => Ok(true),
            Err(LocalError::Ended { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn gone(&self, within: Duration) -> Result<(), LocalError> {
        if self.wait(within).await {
            Ok(())
        } else {
            Err(LocalError::WillNotDie { name: self.0.name.clone(), pid: self.pid() })
        }
    }

    fn signal_tree(&self, signal: Signal) {
        let descendants = table::descendants(self.pid());
        self.signal(signal);
        descendants.iter().for_each(|identity| identity.signal(signal));
    }

    /// Deletes the record, unless a new process of this name has replaced it.
    fn forget(&self) {
        let record = self.0.state.record(&self.0.name);
        if Identity::recorded(&record).as_ref() == Some(&self.0.identity) {
            // A record that can't be deleted is harmless, because its process is not alive.
            let _ = fs::remove_file(record);
        }
    }
}

impl Signal {
    const fn number(self) -> rustix::process::Signal {
        use rustix::process::Signal;
        match self {
            Self::Terminate => Signal::TERM,
            Self::Interrupt => Signal::INT,
            Self::Quit => Signal::QUIT,
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Continue => Signal::CONT,
        }
    }

    /// The name for `kill -s`.
    const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "TERM",
            Self::Interrupt => "INT",
            Self::Quit => "QUIT",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_spec_does_not_show_its_environment() {
        let spec = ProcessSpec::new("x", Path::new("/bin/true")).env("SOME_URL", "amqp://u:secret@h");
        let shown = format!("{spec:?}");
        assert!(shown.contains("SOME_URL") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn only_the_owner_may_read_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.log");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(open_log(&path).unwrap());
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        drop(open_log(&path).unwrap());
        assert_eq!(mode(), 0o600, "that of an earlier release");
    }
}
