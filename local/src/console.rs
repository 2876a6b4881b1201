//! The console of a fleet that keeps running, and the read API that it uses. Both listen on loopback and keep their ports, so that a page
//! in a browser still works after a restart.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    blobs::BlobEndpoint,
    error::LocalError,
    fleet::{AMQP_URL, DATABASE_URL, forget, launch, ready_file},
    ports,
    process::{Process, ProcessSpec},
    programs, secret,
    services::Endpoints,
    state::StateDir,
};

/// The names of the processes.
pub(crate) const CONSOLE: &str = "console";
pub(crate) const API: &str = "api";
const API_URL: &str = "GPUFLEET_API_URL";
const API_TOKEN: &str = "GPUFLEET_API_TOKEN";
const PROGRAM: &str = "gpufleet-console";
const LEDGER_PROGRAM: &str = "gpufleet-ledger";
/// Time limit for a start, which takes a moment, and longer on a loaded machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The programs of a console.
#[derive(Debug)]
pub(crate) struct Programs {
    console: PathBuf,
    ledger: PathBuf,
}

/// Whether the fleet has a console, so that a later start without the option repairs it.
pub(crate) fn is_recorded(state: &StateDir) -> bool {
    state.record(CONSOLE).exists()
}

/// The URL of the console, if it serves. Its fragment has the viewer's token, which a browser does not send to the server: the page
/// exchanges it for a cookie.
pub(crate) fn url(state: &StateDir) -> Option<String> {
    let url = fs::read_to_string(ready_file(state, CONSOLE)).ok()?;
    let token = fs::read_to_string(viewer_token_file(state).ok()?).ok()?;
    Some(format!("{}#token={}", url.trim(), token.trim()))
}

/// Returns the variables with which programs use the read API. None if it does not run.
pub(crate) fn api(state: &Arc<StateDir>) -> Result<Vec<(String, String)>, LocalError> {
    if Process::attach(state, API).is_none() {
        return Ok(Vec::new());
    }
    let port = Port::choose(state, API)?;
    let token = secret::kept_in(&token_file(state)?)?;
    let url = format!("http://{}", port.address());
    Ok([(API_URL, url), (API_TOKEN, token)].map(|(name, value)| (name.to_owned(), value)).to_vec())
}

fn token_file(state: &StateDir) -> Result<PathBuf, LocalError> {
    Ok(state.private_dir("secrets")?.join("api-token"))
}

fn viewer_token_file(state: &StateDir) -> Result<PathBuf, LocalError> {
    Ok(state.private_dir("secrets")?.join("console-token"))
}

impl Programs {
    pub(crate) fn find(bin_dir: Option<&Path>) -> Result<Self, LocalError> {
        Ok(Self { console: programs::ours(bin_dir, PROGRAM)?, ledger: programs::ours(bin_dir, LEDGER_PROGRAM)? })
    }

    /// Starts the processes that do not run, and returns when the console is ready.
    pub(crate) async fn start(&self, state: &Arc<StateDir>, endpoints: &Endpoints) -> Result<(), LocalError> {
        // Without a token, other users of the machine could read all jobs from the API.
        let token = secret::kept_in(&token_file(state)?)?;
        let port = Port::choose(state, API)?;
        let api = launch(API, &self.ledger).args(["serve", "--listen", &port.address()]).env(API_TOKEN, &token);
        let api = api.env(DATABASE_URL, &endpoints.database_url);
        let number = port.number;
        // The API has no ready file; a connection shows that it listens.
        run(state, API, port, api, async || TcpStream::connect((Ipv4Addr::LOCALHOST, number)).is_ok()).await?;

        let port = Port::choose(state, CONSOLE)?;
        let file = ready_file(state, CONSOLE);
        if Process::attach(state, CONSOLE).is_none() {
            forget(&file)?;
        }
        // Without a token, other users of the machine could cancel jobs, among them the one that runs the jobs' kernels.
        let viewer_token = viewer_token_file(state)?;
        secret::kept_in(&viewer_token)?;
        let mut console = launch(CONSOLE, &self.console)
            .args(["--actions", "--listen", &port.address()])
            .args(["--api", &format!("http://127.0.0.1:{number}")])
            .args(["--ready-file".as_ref(), file.as_os_str()])
            .args(["--token-file".as_ref(), viewer_token.as_os_str()])
            .env(API_TOKEN, &token)
            .env(AMQP_URL, &endpoints.amqp_url);
        for (name, value) in endpoints.blobs.iter().flat_map(BlobEndpoint::environment) {
            console = console.env(name, value);
        }
        run(state, CONSOLE, port, console, async || file.exists()).await
    }
}

/// The port of a process, which stays the same.
struct Port {
    number: u16,
    is_recorded: bool,
    record: PathBuf,
}

impl Port {
    fn choose(state: &StateDir, name: &str) -> Result<Self, LocalError> {
        let record = state.private_dir("secrets")?.join(format!("{name}-port"));
        let recorded = ports::recorded(&record)?;
        Ok(Self { number: recorded.map_or_else(ports::free, Ok)?, is_recorded: recorded.is_some(), record })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

async fn run(
    state: &Arc<StateDir>,
    name: &str,
    port: Port,
    program: ProcessSpec,
    mut ready: impl AsyncFnMut() -> bool,
) -> Result<(), LocalError> {
    // An interrupted command may have started it.
    if let Some(process) = Process::attach(state, name)
        && process.ready_or_ended(READY_WITHIN, &mut ready).await?
    {
        return Ok(());
    }
    if port.is_recorded {
        ports::reclaim(state, name, port.number, &port.record).await?;
    } else {
        secret::write_private(&port.record, &port.number.to_string())?;
    }
    program.spawn(state)?.ready(READY_WITHIN, ready).await
}
