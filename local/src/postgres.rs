//! A private Postgres server on loopback and on a Unix socket, from the installed package.
//!
//! Postgres refuses to run as root. If root starts the fleet, `setpriv` runs Postgres as the package's user `postgres`.

use std::{
    fmt, fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{process::Command, time::timeout};

use crate::{
    error::{FileContext as _, LocalError, checked_name},
    ports,
    process::{self, Identity, POLL, Process, ProcessSpec, Signal, User},
    programs, secret,
    state::{self, StateDir},
};

mod standby;

const NAME: &str = "postgres";
/// Memory for pages of tables and indexes; small, because many servers of tests run at once on a machine.
const SHARED_BUFFERS: &str = "64MB";
const SUPERUSER: &str = "gpufleet";
/// The file in the data directory with the server's process id and state.
const LOCK_FILE: &str = "postmaster.pid";
/// Time limit for a start, which takes half a second if Postgres has nothing to recover.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for a fast stop, which ends sessions and writes a checkpoint.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Time limit for `initdb`, `createdb` and `psql`; none takes more than a second or two.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
/// Number of attempts to start, because another process can take a port between the check and Postgres' start.
const START_TRIES: u32 = 5;
/// Time limit for killed sessions. They end at once, unless the kernel is still freeing their memory.
const SESSIONS_END_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of connections. Tests run in parallel, each with its own ledger and clients.
const CONNECTIONS_MAX: u32 = 400;

/// The server, running or not. All methods may be called from several tasks.
pub struct Postgres {
    state: Arc<StateDir>,
    directory: PathBuf,
    user: Option<User>,
    password: String,
    shared_buffers: &'static str,
    port: Mutex<u16>,
    process: Mutex<Option<Process>>,
}

impl Postgres {
    /// The signal for a fast shutdown, which ends all sessions.
    pub(crate) const STOP_SIGNAL: Signal = Signal::Interrupt;

    /// Starts a server in this state directory, or attaches to a running one. Data of an earlier run is kept. In an
    /// ephemeral directory Postgres does not sync to disk, because the data is deleted anyway.
    pub async fn start(state: &Arc<StateDir>) -> Result<Self, LocalError> {
        Self::start_with(state, SHARED_BUFFERS).await
    }

    /// Starts a server as [`Self::start`] does, with this much memory for pages of tables and indexes, such as `1GB`.
    pub async fn start_with(state: &Arc<StateDir>, shared_buffers: &'static str) -> Result<Self, LocalError> {
        let secrets = state.private_dir("secrets")?;
        let password = secret::kept_in(&secrets.join(NAME))?;
        let record = secrets.join("postgres-port");
        let recorded = ports::recorded(&record)?;
        let port = recorded.map_or_else(ports::free, Ok)?;
        let postgres = Self::at(state, password, port, shared_buffers)?;
        if !postgres.is_ready_already().await? {
            postgres.initialise(&secrets).await?;
            match recorded {
                Some(port) => ports::reclaim(state, "Postgres", port, &record).await?,
                // The port is written before the start, so that a later command finds it if this one is interrupted.
                None => secret::write_private(&record, &postgres.port().to_string())?,
            }
            postgres.launch_repeatedly().await?;
        }
        Ok(postgres)
    }

    /// The server of a state directory, not yet started.
    fn at(
        state: &Arc<StateDir>,
        password: String,
        port: u16,
        shared_buffers: &'static str,
    ) -> Result<Self, LocalError> {
        let user = server_user()?;
        let directory = state.path().join(NAME);
        state::create_dir(&directory, 0o711)?;
        if let Some(user) = &user {
            check_passage(&directory, user)?;
        }
        let process = Mutex::new(Process::attach(state, NAME));
        let state = Arc::clone(state);
        Ok(Self { state, directory, user, password, shared_buffers, port: Mutex::new(port), process })
    }

    /// The URL of a database over the Unix socket, which avoids Nagle's algorithm.
    pub fn url(&self, database: &str) -> String {
        let socket = percent_encoded(&self.socket_dir());
        format!("postgres://{SUPERUSER}:{}@localhost:{}/{database}?host={socket}", self.password, self.port())
    }

    /// The URL of a database over TCP, for proxies and for clients that can't use a Unix socket.
    pub fn tcp_url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}:{}@127.0.0.1:{}/{database}", self.password, self.port())
    }

    pub fn port(&self) -> u16 {
        *self.port.lock().expect("no panic happens under this lock")
    }

    /// The process id of the server, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().filter(Process::is_alive).map(|process| process.pid())
    }

    pub async fn create_database(&self, name: &str) -> Result<(), LocalError> {
        self.client("createdb", &[checked_name(name)?]).await.map(drop)
    }

    /// Creates a database as a copy of another one, to which no session may be connected.
    pub async fn copy_database(&self, template: &str, name: &str) -> Result<(), LocalError> {
        let template = format!("--template={}", checked_name(template)?);
        self.client("createdb", &[&template, checked_name(name)?]).await.map(drop)
    }

    /// Creates the database if it does not exist.
    pub async fn ensure_database(&self, name: &str) -> Result<(), LocalError> {
        let name = checked_name(name)?;
        let found = self.psql("postgres", &format!("SELECT 1 FROM pg_database WHERE datname = '{name}'")).await?;
        if found.trim().is_empty() { self.create_database(name).await } else { Ok(()) }
    }

    /// Deletes a database and ends its sessions.
    pub async fn drop_database(&self, name: &str) -> Result<(), LocalError> {
        self.client("dropdb", &["--force", "--if-exists", checked_name(name)?]).await.map(drop)
    }

    /// Runs SQL statements and returns the rows, unaligned and without headings.
    pub async fn psql(&self, database: &str, sql: &str) -> Result<String, LocalError> {
        self.psql_within(COMMAND_WITHIN, database, sql).await
    }

    /// Runs SQL statements with a deadline of their own, such as for large tables, and returns the rows.
    pub async fn psql_within(&self, within: Duration, database: &str, sql: &str) -> Result<String, LocalError> {
        let arguments = [
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "--command",
            sql,
            checked_name(database)?,
        ];
        output(self.client_command("psql", &arguments)?, "psql", within).await
    }

    /// Stops the server with a fast shutdown. Does nothing if the server does not run.
    pub async fn stop(&self) -> Result<(), LocalError> {
        let Some(process) = self.process.lock().expect("no panic happens under this lock").take() else {
            return Ok(());
        };
        process.resume();
        process.stop(Self::STOP_SIGNAL, STOP_WITHIN).await.map(drop)
    }

    /// Kills the server and all of its sessions with SIGKILL.
    pub async fn kill9(&self) -> Result<(), LocalError> {
        match self.process() {
            Some(process) => process.kill_tree().await,
            None => Ok(()),
        }
    }

    /// Stops the server if it runs, and starts it on the same port with the same data.
    pub async fn restart(&self) -> Result<(), LocalError> {
        self.stop().await?;
        self.launch_repeatedly().await
    }

    /// Suspends the server and all of its sessions: connections stay open, and no query is answered.
    pub fn pause(&self) {
        if let Some(process) = self.process() {
            process.pause();
        }
    }

    pub fn resume(&self) {
        if let Some(process) = self.process() {
            process.resume();
        }
    }

    /// Waits until a running server is ready, because the command that started it may have been interrupted. `false` if
    /// there is none, or if it has ended.
    async fn is_ready_already(&self) -> Result<bool, LocalError> {
        match self.process() {
            Some(process) => process.ready_or_ended(READY_WITHIN, self.readiness(&process)).await,
            None => Ok(false),
        }
    }

    /// Checks whether the server in this process accepts clients.
    fn readiness(&self, process: &Process) -> impl AsyncFnMut() -> bool {
        let (data, pid) = (self.data_dir(), process.pid());
        async move || says_ready(&data, pid)
    }

    /// Creates the data directory completely or not at all.
    async fn initialise(&self, secrets: &Path) -> Result<(), LocalError> {
        let data = self.data_dir();
        if data.join("PG_VERSION").exists() {
            return Ok(());
        }
        let partial = self.directory.join("data.partial");
        if partial.exists() {
            fs::remove_dir_all(&partial).at("remove", &partial)?;
        }
        self.create_own(&[&partial, &self.socket_dir()])?;
        let password_file = secrets.join("postgres-initdb");
        secret::write_private(&password_file, &self.password)?;
        let handed = partial.with_extension("password");
        fs::rename(&password_file, &handed).at("rename to", &handed)?;
        self.give(&handed)?;
        let mut command = self.command("initdb")?;
        command.arg("-D").arg(&partial).arg(format!("--pwfile={}", handed.display()));
        command.args([&format!("--username={SUPERUSER}"), "--auth-local=trust", "--auth-host=scram-sha-256"]);
        command.args(["--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"]);
        if self.state.is_ephemeral() {
            command.arg("--no-sync");
        }
        let result = output(command, "initdb", COMMAND_WITHIN).await;
        fs::remove_file(&handed).at("remove", &handed)?;
        result?;
        fs::rename(&partial, &data).at("rename to", &data)
    }

    async fn launch_repeatedly(&self) -> Result<(), LocalError> {
        self.end_sessions().await?;
        self.remove_stale_locks()?;
        for _ in 1..START_TRIES {
            match self.launch().await {
                Err(LocalError::Ended { .. }) => tokio::time::sleep(Duration::from_millis(200)).await,
                result => return result,
            }
        }
        self.launch().await
    }

    /// Kills the sessions that a killed server has left. They hold its shared memory until their query ends, and no new
    /// server can start meanwhile.
    async fn end_sessions(&self) -> Result<(), LocalError> {
        let data = self.data_dir();
        let data = fs::canonicalize(&data).at("resolve", &data)?;
        let deadline = Instant::now() + SESSIONS_END_WITHIN;
        while let Some(session) = process::working_in(&data, "postgres").first() {
            if Instant::now() >= deadline {
                return Err(LocalError::WillNotDie { name: NAME.to_owned(), pid: session.pid });
            }
            session.signal(Signal::Kill);
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Removes the lock files of a killed server whose parent has not collected it: Postgres takes a zombie for a
    /// running server.
    fn remove_stale_locks(&self) -> Result<(), LocalError> {
        let socket_lock = self.socket_dir().join(format!(".s.PGSQL.{}.lock", self.port()));
        for lock in [self.data_dir().join(LOCK_FILE), socket_lock] {
            if locked_by(&lock).and_then(Identity::of).is_some_and(|server| !server.is_alive()) {
                fs::remove_file(&lock).at("remove", &lock)?;
            }
        }
        Ok(())
    }

    async fn launch(&self) -> Result<(), LocalError> {
        let data = self.data_dir();
        let mut settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port()),
            format!("unix_socket_directories={}", self.socket_dir().display()),
            format!("max_connections={CONNECTIONS_MAX}"),
            format!("shared_buffers={}", self.shared_buffers),
            "log_min_messages=warning".to_owned(),
        ];
        if self.state.is_ephemeral() {
            // Commits stay synchronous, because an asynchronous commit could be lost when a test kills the server.
            settings.extend(["fsync=off", "full_page_writes=off", "autovacuum=off"].map(str::to_owned));
        }
        let process = ProcessSpec::new(NAME, &programs::postgres("postgres")?)
            .args(["-D".as_ref(), data.as_os_str()])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .env("HOME", &self.directory)
            .directory(&self.directory)
            .user(self.user.as_ref())
            // An immediate shutdown frees the shared memory; SIGKILL does not.
            .abandon(Signal::Quit)
            .spawn(&self.state)?;
        *self.process.lock().expect("no panic happens under this lock") = Some(process.clone());
        process.ready(READY_WITHIN, self.readiness(&process)).await
    }

    /// Runs one of the client programs over the Unix socket.
    async fn client(&self, program: &'static str, arguments: &[&str]) -> Result<String, LocalError> {
        output(self.client_command(program, arguments)?, program, COMMAND_WITHIN).await
    }

    fn client_command(&self, program: &str, arguments: &[&str]) -> Result<Command, LocalError> {
        let mut command = self.command(program)?;
        command.arg("--host").arg(self.socket_dir()).args([
            "--port",
            &self.port().to_string(),
            "--username",
            SUPERUSER,
            "--no-password",
        ]);
        command.args(arguments);
        Ok(command)
    }

    fn command(&self, name: &str) -> Result<Command, LocalError> {
        let program = programs::postgres(name)?;
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(user.setpriv()).arg(program);
                command
            }
            None => Command::new(program),
        };
        let inherited =
            std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("PG"));
        inherited.for_each(|name| {
            command.env_remove(name);
        });
        let (marker, path) = self.state.marker();
        command.current_dir(&self.directory).env("HOME", &self.directory).env(marker, path).kill_on_drop(true);
        Ok(command)
    }

    /// Creates folders of the server's user.
    fn create_own(&self, paths: &[&Path]) -> Result<(), LocalError> {
        paths.iter().try_for_each(|path| {
            state::create_dir(path, 0o700)?;
            self.give(path)
        })
    }

    /// Makes the server's user the owner.
    fn give(&self, path: &Path) -> Result<(), LocalError> {
        match &self.user {
            Some(user) => chown(path, Some(user.uid), Some(user.gid)).at("change the owner of", path),
            None => Ok(()),
        }
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn socket_dir(&self) -> PathBuf {
        self.directory.join("s")
    }

    fn process(&self) -> Option<Process> {
        self.process.lock().expect("no panic happens under this lock").clone()
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("directory", &self.directory)
            .field("port", &self.port())
            .field("pid", &self.pid())
            .finish()
    }
}

/// The user of the server: the current user, or a less privileged one if this process runs as root.
fn server_user() -> Result<Option<User>, LocalError> {
    if !state::is_root() {
        return Ok(None);
    }
    ["postgres", "nobody"].into_iter().find_map(User::named).map(Some).ok_or_else(|| LocalError::ProgramMissing {
        name: "postgres".to_owned(),
        hint: "Postgres needs the system user postgres; install the package postgresql".to_owned(),
    })
}

/// Checks that the server's user may enter every directory above, because Postgres opens its data by the whole path.
fn check_passage(directory: &Path, user: &User) -> Result<(), LocalError> {
    for above in directory.ancestors() {
        let metadata = fs::metadata(above).at("look at", above)?;
        let bit = if metadata.uid() == user.uid { 0o100 } else { 0o001 };
        if metadata.mode() & bit == 0 {
            let (path, barrier, user) = (directory.to_owned(), above.to_owned(), user.name.clone());
            return Err(LocalError::Barrier { path, barrier, user });
        }
    }
    Ok(())
}

/// The process that a lock file names.
fn locked_by(lock: &Path) -> Option<u32> {
    fs::read_to_string(lock).ok()?.lines().next()?.parse().ok()
}

/// The server keeps its state in the eighth line of its lock file, for `pg_ctl` and others.
fn says_ready(data: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(data.join(LOCK_FILE)) else { return false };
    let mut lines = text.lines();
    lines.next().and_then(|line| line.parse().ok()) == Some(pid)
        && lines.nth(6).is_some_and(|line| line.trim() == "ready")
}

async fn output(mut command: Command, name: &str, within: Duration) -> Result<String, LocalError> {
    let failed = |detail: String| LocalError::Command { command: name.to_owned(), detail };
    let output = timeout(within, command.output())
        .await
        .map_err(|_| failed(format!("no answer in {} s", within.as_secs())))?
        .map_err(|source| LocalError::Spawn { name: name.to_owned(), source })?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// A path, encoded as a value in the query of a URL.
fn percent_encoded(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    path.as_os_str()
        .as_bytes()
        .iter()
        .map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
