//! A private RabbitMQ node on loopback, from the installed package.
//!
//! It has its own data, ports, password, Erlang cookie and Erlang port mapper (epmd), so that the system's broker and other private
//! ones are not touched. epmd is started by us, in the foreground: the one that Erlang starts by itself would stay behind.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    error::{FileContext as _, LocalError, checked_name},
    ports,
    process::{Launch, Process, Signal},
    programs, secret,
    state::StateDir,
};

mod config;
mod control;

use config::{Config, Ports, USER};

pub use config::DEFAULT_VHOST;

const NAME: &str = "broker";
const EPMD: &str = "epmd";
/// About four seconds on two idle cores; a loaded machine takes its time.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// A clean stop closes connections and writes what is in memory.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// epmd keeps nothing.
const EPMD_STOP_WITHIN: Duration = Duration::from_secs(2);
/// A port can be taken between our look and Erlang's. Twice in a row is unlikely already.
const PORT_TRIES: u32 = 5;
/// One look whether the broker answers; the caller looks again.
const HANDSHAKE_WITHIN: Duration = Duration::from_millis(500);
/// A command through `rabbitmqctl` boots an Erlang of its own.
const CTL_WITHIN: Duration = Duration::from_secs(60);

/// The broker, running or not. All methods may be called from several tasks.
pub struct Broker {
    state: Arc<StateDir>,
    directory: PathBuf,
    password: String,
    ports: Mutex<Ports>,
    processes: Mutex<Option<Processes>>,
}

#[derive(Debug, Clone)]
struct Processes {
    node: Process,
    epmd: Process,
}

impl Broker {
    /// Starts a broker in this state directory, or attaches to the one that runs there. Data of an earlier run is kept.
    /// When cancelled, processes may stay until the state directory's guard or [`Broker::stop`] ends them.
    pub async fn start(state: &Arc<StateDir>) -> Result<Self, LocalError> {
        let directory = state.private_dir(NAME)?;
        let password = secret::kept_in(&directory.join("password"))?;
        let ports = Ports::kept_in(&directory)?;
        let broker = Self {
            state: Arc::clone(state),
            directory,
            password,
            ports: Mutex::new(ports),
            processes: Mutex::new(None),
        };
        if !broker.attach().await? {
            broker.start_on_free_ports().await?;
        }
        Ok(broker)
    }

    /// Where AMQP clients connect, to the vhost that the broker has from the start.
    pub fn url(&self) -> String {
        self.vhost_url(DEFAULT_VHOST)
    }

    pub fn vhost_url(&self, vhost: &str) -> String {
        format!("amqp://{USER}:{}@127.0.0.1:{}/{vhost}", self.password, self.port())
    }

    /// The AMQP port. It stays the same through restarts.
    pub fn port(&self) -> u16 {
        self.ports.lock().expect("no panic happens under this lock").amqp
    }

    /// The process id of the Erlang machine, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.node().filter(Process::is_alive).map(|node| node.pid())
    }

    /// Makes a vhost where the broker's user may do everything.
    pub async fn create_vhost(&self, vhost: &str) -> Result<(), LocalError> {
        let vhost = checked_name(vhost)?;
        let expression = format!(
            "ok=rabbit_vhost:add(<<\"{vhost}\">>,<<\"{USER}\">>),\
             ok=rabbit_auth_backend_internal:set_permissions(<<\"{USER}\">>,<<\"{vhost}\">>,<<\".*\">>,<<\".*\">>,<<\".*\">>,<<\"{USER}\">>)."
        );
        self.control("create a vhost", &expression).await.map(drop)
    }

    /// Removes a vhost with all queues in it; its connections are closed.
    pub async fn delete_vhost(&self, vhost: &str) -> Result<(), LocalError> {
        let vhost = checked_name(vhost)?;
        self.control("delete a vhost", &format!("ok=rabbit_vhost:delete(<<\"{vhost}\">>,<<\"{USER}\">>)."))
            .await
            .map(drop)
    }

    /// Evaluates an Erlang expression (with its full stop) inside the broker and gives its value as Erlang prints it. Takes a
    /// millisecond, where `rabbitmqctl eval` takes a second.
    pub async fn eval(&self, expression: &str) -> Result<String, LocalError> {
        self.control("evaluate an expression", expression).await
    }

    /// Runs `rabbitmqctl` against this broker and gives what it prints.
    pub async fn ctl(&self, arguments: &[&str]) -> Result<String, LocalError> {
        let program = programs::rabbitmq("rabbitmqctl")?;
        let mut command = tokio::process::Command::new(program);
        command.arg("--quiet").args(arguments).current_dir(&self.directory).kill_on_drop(true);
        for (name, value) in self.config().environment() {
            command.env(name, value);
        }
        let described = || format!("rabbitmqctl {}", arguments.join(" "));
        let output = timeout(CTL_WITHIN, command.output())
            .await
            .map_err(|_| LocalError::Command {
                command: described(),
                detail: format!("no answer in {} s", CTL_WITHIN.as_secs()),
            })?
            .map_err(|source| LocalError::Spawn { name: "rabbitmqctl".to_owned(), source })?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let detail = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(LocalError::Command { command: described(), detail })
        }
    }

    /// Stops it cleanly, its port mapper too. Fine when it does not run.
    pub async fn stop(&self) -> Result<(), LocalError> {
        let Some(Processes { node, epmd }) = self.take() else { return Ok(()) };
        node.resume();
        node.stop(Signal::Terminate, STOP_WITHIN).await?;
        epmd.stop(Signal::Terminate, EPMD_STOP_WITHIN).await.map(drop)
    }

    /// Ends it as a crash of the machine's process would. [`Broker::restart`] brings it back.
    pub async fn kill9(&self) -> Result<(), LocalError> {
        match self.node() {
            Some(node) => node.kill9().await,
            None => Ok(()),
        }
    }

    /// Starts it again on the same ports with the same data; stops it before where it still runs. Returns when it answers.
    pub async fn restart(&self) -> Result<(), LocalError> {
        self.stop().await?;
        self.launch().await
    }

    /// Freezes it: connections stay open and nothing answers.
    pub fn pause(&self) {
        if let Some(node) = self.node() {
            node.pause();
        }
    }

    pub fn resume(&self) {
        if let Some(node) = self.node() {
            node.resume();
        }
    }

    /// Takes over a broker that runs, and waits for it: whoever started it may have been interrupted while it came up. `false` where
    /// there is none, or where it has ended.
    async fn attach(&self) -> Result<bool, LocalError> {
        let found = Process::attach(&self.state, NAME).zip(Process::attach(&self.state, EPMD));
        let Some((node, epmd)) = found else { return Ok(false) };
        *self.processes.lock().expect("no panic happens under this lock") =
            Some(Processes { node: node.clone(), epmd });
        node.ready_or_ended(READY_WITHIN, self.readiness()).await
    }

    /// Looks whether the broker takes clients and commands.
    fn readiness(&self) -> impl AsyncFnMut() -> bool {
        let (control, port) = (self.directory.join(control::SOCKET), self.port());
        async move || control.exists() && answers(port).await
    }

    async fn start_on_free_ports(&self) -> Result<(), LocalError> {
        // Half of an earlier pair may be left after a crash.
        for name in [NAME, EPMD] {
            if let Some(leftover) = Process::attach(&self.state, name) {
                leftover.kill_tree().await?;
            }
        }
        for _ in 1..PORT_TRIES {
            let ports = *self.ports.lock().expect("no panic happens under this lock");
            if ports.are_free() {
                match self.launch().await {
                    Err(LocalError::Ended { .. }) if !ports.are_free() => self.stop().await?,
                    result => return result,
                }
            }
            let ports = Ports::choose()?;
            ports.keep_in(&self.directory)?;
            *self.ports.lock().expect("no panic happens under this lock") = ports;
        }
        self.launch().await
    }

    async fn launch(&self) -> Result<(), LocalError> {
        let config = self.config();
        config.write()?;
        let control = self.directory.join(control::SOCKET);
        let _ = std::fs::remove_file(&control);
        let epmd = Launch::new(EPMD, &programs::epmd()?)
            .args(["-address", "127.0.0.1", "-port", &config.ports.epmd.to_string()])
            .directory(&self.directory)
            .spawn(&self.state)?;
        let mut launch =
            Launch::new(NAME, &programs::rabbitmq("rabbitmq-server")?).directory(&self.directory).abandon(Signal::Kill);
        for name in config::inherited() {
            launch = launch.env_remove(name);
        }
        for (name, value) in config.environment() {
            launch = launch.env(name, value);
        }
        let node = launch.spawn(&self.state)?;
        *self.processes.lock().expect("no panic happens under this lock") =
            Some(Processes { node: node.clone(), epmd });
        node.ready(READY_WITHIN, self.readiness()).await
    }

    async fn control(&self, request: &'static str, expression: &str) -> Result<String, LocalError> {
        control::evaluate(&self.directory.join(control::SOCKET), expression)
            .await
            .map_err(|detail| LocalError::Control { request, detail })
    }

    fn config(&self) -> Config<'_> {
        let ports = *self.ports.lock().expect("no panic happens under this lock");
        Config { directory: &self.directory, logs: self.state.logs(), password: &self.password, ports }
    }

    fn node(&self) -> Option<Process> {
        self.processes
            .lock()
            .expect("no panic happens under this lock")
            .as_ref()
            .map(|processes| processes.node.clone())
    }

    fn take(&self) -> Option<Processes> {
        self.processes.lock().expect("no panic happens under this lock").take()
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("directory", &self.directory)
            .field("port", &self.port())
            .field("pid", &self.pid())
            .finish()
    }
}

/// Whether an AMQP server greets: it answers the protocol header with a method frame, which a listening port alone does not.
async fn answers(port: u16) -> bool {
    const HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
    const METHOD_FRAME: u8 = 1;
    let greet = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(HEADER).await?;
        stream.read_u8().await
    };
    matches!(timeout(HANDSHAKE_WITHIN, greet).await, Ok(Ok(METHOD_FRAME)))
}

impl Ports {
    fn are_free(self) -> bool {
        [self.amqp, self.distribution, self.epmd].into_iter().all(ports::is_free)
    }

    fn choose() -> Result<Self, LocalError> {
        Ok(Self { amqp: ports::free()?, distribution: ports::free()?, epmd: ports::free()? })
    }

    /// The ports of the earlier run, so that clients find the broker again; new ones where there was none.
    fn kept_in(directory: &std::path::Path) -> Result<Self, LocalError> {
        let kept =
            std::fs::read_to_string(directory.join("ports")).ok().and_then(|text| serde_json::from_str(&text).ok());
        match kept {
            Some(ports) => Ok(ports),
            None => {
                let ports = Self::choose()?;
                ports.keep_in(directory)?;
                Ok(ports)
            }
        }
    }

    fn keep_in(self, directory: &std::path::Path) -> Result<(), LocalError> {
        let path = directory.join("ports");
        let text = serde_json::to_string(&self).expect("three numbers have a JSON form");
        std::fs::write(&path, text).at("write", &path)
    }
}
