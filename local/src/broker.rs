//! A private RabbitMQ node on loopback, from the installed package.
//!
//! The node has its own data, ports, password, Erlang cookie and Erlang port mapper (epmd), so it does not affect the
//! system's broker or other private nodes. This crate starts epmd itself, in the foreground, because an epmd that
//! Erlang starts would keep running.

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
    error::{LocalError, checked_name},
    ports,
    process::{Process, ProcessSpec, Signal},
    programs, secret,
    state::StateDir,
};

mod cluster;
mod config;
mod control;
mod member;
mod node_ports;

use config::{Config, USER};
use member::Member;
use node_ports::Ports;

pub use config::DEFAULT_VHOST;

const EPMD: &str = "epmd";
/// Time limit for a start, which takes about four seconds on two idle cores, and much longer on a loaded machine.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for a clean stop, which closes connections and writes messages to disk.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Time limit for epmd to stop; it has no data to write.
const EPMD_STOP_WITHIN: Duration = Duration::from_secs(2);
/// Number of attempts to start, because another process can take a port between the check and Erlang's start. Twice in a row is already
/// unlikely.
const PORT_TRIES: u32 = 5;
/// The limit for one check whether the broker answers; the caller repeats it.
const HANDSHAKE_WITHIN: Duration = Duration::from_millis(500);
/// Time limit for `rabbitmqctl`, which starts an Erlang VM: a second or more, and much longer on a loaded machine.
const CTL_WITHIN: Duration = Duration::from_secs(120);

/// The broker, running or not. All methods may be called from several tasks.
pub struct RabbitMq {
    state: Arc<StateDir>,
    member: Member,
    directory: PathBuf,
    /// The directory of the Erlang cookie, which all nodes of a cluster share.
    home: PathBuf,
    password: String,
    ports: Mutex<Ports>,
    processes: Mutex<Option<Processes>>,
}

#[derive(Debug, Clone)]
struct Processes {
    node: Process,
    epmd: Process,
}

impl RabbitMq {
    /// Starts a broker in this state directory, or attaches to the one that runs there. Data of an earlier run is kept.
    /// When cancelled, processes may stay until the state directory's guard or [`RabbitMq::stop`] ends them.
    pub async fn start(state: &Arc<StateDir>) -> Result<Self, LocalError> {
        Self::start_member(state, Member::ALONE, None).await
    }

    /// Starts one node. `epmd` is the port of the cluster's port mapper, if another node has started it.
    async fn start_member(state: &Arc<StateDir>, member: Member, epmd: Option<u16>) -> Result<Self, LocalError> {
        let directory = state.private_dir(&member.name())?;
        let home = state.private_dir(&Member::ALONE.name())?;
        let password = secret::kept_in(&home.join("password"))?;
        let recorded = Ports::recorded(&directory)?;
        let ports = recorded.map_or_else(|| Ports::choose(epmd), Ok)?;
        let broker = Self {
            state: Arc::clone(state),
            member,
            directory,
            home,
            password,
            ports: Mutex::new(ports),
            processes: Mutex::new(None),
        };
        if !broker.attach().await? {
            broker.end_leftovers().await?;
            match recorded {
                Some(ports) => broker.start_on_recorded_ports(ports).await?,
                None => broker.start_on_new_ports(ports).await?,
            }
        }
        Ok(broker)
    }

    /// The AMQP URL of the vhost that the broker has from the start.
    pub fn url(&self) -> String {
        self.vhost_url(DEFAULT_VHOST)
    }

    pub fn vhost_url(&self, vhost: &str) -> String {
        format!("amqp://{USER}:{}@127.0.0.1:{}/{vhost}", self.password, self.port())
    }

    /// The AMQP port. It stays the same through restarts.
    pub fn port(&self) -> u16 {
        self.ports().amqp
    }

    /// The name by which Erlang and `rabbitmqctl` know the node.
    pub fn node_name(&self) -> String {
        self.member.node()
    }

    /// The process id of the Erlang VM, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.node().filter(Process::is_alive).map(|node| node.pid())
    }

    /// Creates a vhost in which the broker's user has all permissions.
    pub async fn create_vhost(&self, vhost: &str) -> Result<(), LocalError> {
        let vhost = checked_name(vhost)?;
        let expression = format!(
            "ok=rabbit_vhost:add(<<\"{vhost}\">>,<<\"{USER}\">>),\
             ok=rabbit_auth_backend_internal:set_permissions(<<\"{USER}\">>,<<\"{vhost}\">>,<<\".*\">>,<<\".*\">>,<<\".*\">>,<<\"{USER}\">>)."
        );
        self.control("create a vhost", &expression).await.map(drop)
    }

    /// Deletes a vhost with all of its queues, and closes its connections.
    pub async fn delete_vhost(&self, vhost: &str) -> Result<(), LocalError> {
        let vhost = checked_name(vhost)?;
        self.control("delete a vhost", &format!("ok=rabbit_vhost:delete(<<\"{vhost}\">>,<<\"{USER}\">>)."))
            .await
            .map(drop)
    }

    /// Evaluates an Erlang expression (with its full stop) inside the broker. Returns the value as Erlang prints it.
    /// This takes a millisecond; `rabbitmqctl eval` takes a second.
    pub async fn eval(&self, expression: &str) -> Result<String, LocalError> {
        self.control("evaluate an expression", expression).await
    }

    /// Runs `rabbitmqctl` against this broker and returns its output.
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

    /// Stops the broker and its port mapper cleanly; of a cluster only this node. Does nothing if the broker does not run.
    pub async fn stop(&self) -> Result<(), LocalError> {
        let Some(Processes { node, epmd }) = self.take() else { return Ok(()) };
        node.resume();
        node.stop(Signal::Terminate, STOP_WITHIN).await?;
        if !self.member.is_alone() {
            return Ok(());
        }
        epmd.stop(Signal::Terminate, EPMD_STOP_WITHIN).await.map(drop)
    }

    /// Kills the broker with SIGKILL. [`RabbitMq::restart`] starts it again.
    pub async fn kill9(&self) -> Result<(), LocalError> {
        match self.node() {
            Some(node) => node.kill9().await,
            None => Ok(()),
        }
    }

    /// Stops the broker if it runs, and starts it on the same ports with the same data. Returns when the broker is
    /// ready.
    pub async fn restart(&self) -> Result<(), LocalError> {
        self.stop().await?;
        self.launch().await
    }

    /// Suspends the broker: connections stay open, and no request is answered.
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

    /// Attaches to a running broker and waits until it is ready, because the command that started it may have been
    /// interrupted. A port mapper that died is replaced; the node registers with the new one by itself. `false` if
    /// there is no node, or if it has ended.
    async fn attach(&self) -> Result<bool, LocalError> {
        let Some(node) = Process::attach(&self.state, &self.member.name()) else { return Ok(false) };
        let epmd = match Process::attach(&self.state, EPMD) {
            Some(epmd) => epmd,
            None => {
                self.reclaim(self.ports().epmd).await?;
                self.launch_epmd()?
            }
        };
        self.keep(&node, epmd);
        node.ready_or_ended(READY_WITHIN, self.readiness()).await
    }

    /// Checks whether the broker accepts clients and commands.
    fn readiness(&self) -> impl AsyncFnMut() -> bool {
        let (control, port) = (self.directory.join(control::SOCKET), self.port());
        async move || control.exists() && answers(port).await
    }

    /// Stops a node or a port mapper that a crash of the other has left running. The port mapper of a cluster serves the other nodes.
    async fn end_leftovers(&self) -> Result<(), LocalError> {
        let names = [Some(self.member.name()), self.member.is_alone().then(|| EPMD.to_owned())];
        for name in names.into_iter().flatten() {
            if let Some(leftover) = Process::attach(&self.state, &name) {
                leftover.kill_tree().await?;
            }
        }
        Ok(())
    }

    /// Never moves to other ports, because the ledger, workers and clients would still connect to the old ones.
    async fn start_on_recorded_ports(&self, ports: Ports) -> Result<(), LocalError> {
        for port in ports.all() {
            self.reclaim(port).await?;
        }
        self.launch().await
    }

    /// No client knows the ports of a first start yet, so the broker takes others if another process has taken them.
    async fn start_on_new_ports(&self, mut ports: Ports) -> Result<(), LocalError> {
        for _ in 1..PORT_TRIES {
            ports.keep_in(&self.directory)?;
            *self.ports.lock().expect("no panic happens under this lock") = ports;
            match self.launch().await {
                Err(LocalError::Ended { .. }) if !ports.are_free() => self.stop().await?,
                result => return result,
            }
            ports = Ports::choose((!self.member.is_first()).then_some(ports.epmd))?;
        }
        ports.keep_in(&self.directory)?;
        *self.ports.lock().expect("no panic happens under this lock") = ports;
        self.launch().await
    }

    async fn reclaim(&self, port: u16) -> Result<(), LocalError> {
        ports::reclaim(&self.state, "RabbitMQ", port, &Ports::record(&self.directory)).await
    }

    fn launch_epmd(&self) -> Result<Process, LocalError> {
        ProcessSpec::new(EPMD, &programs::epmd()?)
            .args(["-address", "127.0.0.1", "-port", &self.ports().epmd.to_string()])
            .directory(&self.directory)
            .spawn(&self.state)
    }

    async fn launch(&self) -> Result<(), LocalError> {
        let config = self.config();
        config.write()?;
        let control = self.directory.join(control::SOCKET);
        let _ = std::fs::remove_file(&control);
        let epmd = match Process::attach(&self.state, EPMD).filter(|_| !self.member.is_alone()) {
            Some(of_cluster) => of_cluster,
            None => self.launch_epmd()?,
        };
        let mut launch = ProcessSpec::new(&self.member.name(), &programs::rabbitmq("rabbitmq-server")?)
            .directory(&self.directory)
            .abandon(Signal::Kill);
        for name in config::foreign() {
            launch = launch.env_remove(name);
        }
        for (name, value) in config.environment() {
            launch = launch.env(name, value);
        }
        let node = launch.spawn(&self.state)?;
        self.keep(&node, epmd);
        node.ready(READY_WITHIN, self.readiness()).await
    }

    async fn control(&self, request: &'static str, expression: &str) -> Result<String, LocalError> {
        control::evaluate(&self.directory.join(control::SOCKET), expression)
            .await
            .map_err(|detail| LocalError::Control { request, detail })
    }

    fn config(&self) -> Config<'_> {
        Config {
            member: self.member,
            directory: &self.directory,
            home: &self.home,
            logs: self.state.logs(),
            password: &self.password,
            ports: self.ports(),
        }
    }

    fn ports(&self) -> Ports {
        *self.ports.lock().expect("no panic happens under this lock")
    }

    fn keep(&self, node: &Process, epmd: Process) {
        let processes = Processes { node: node.clone(), epmd };
        *self.processes.lock().expect("no panic happens under this lock") = Some(processes);
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

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq")
            .field("member", &self.member)
            .field("directory", &self.directory)
            .field("port", &self.port())
            .field("pid", &self.pid())
            .finish()
    }
}

/// Whether an AMQP server responds: it answers the protocol header with a method frame, which a listening port alone
/// does not.
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
