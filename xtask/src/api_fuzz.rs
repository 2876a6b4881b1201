//! `cargo xtask api-fuzz`: sends requests to the read API, and to the console, which passes the API's pages on. schemathesis derives valid
//! and invalid requests from the OpenAPI document. The command fails if an answer is a server error or is not described in the document.

use std::{fs, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use gpufleet_local::{Cuda, LocalFleet, Services, StateDir, setup::Part};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    console::CONSOLE_PACKAGE,
    interrupt::unless_interrupted,
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to schemathesis, such as `--max-examples 1000`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The token of the server that this command starts. It has the minimum length of a token.
const TOKEN: &str = "token-of-cargo-xtask-api-fuzz";
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// The number of jobs: more than one page at the smallest limit.
const JOBS: u32 = 3;
/// The seed of the requests, fixed so that every run sends the same ones.
const SEED: &str = "1";

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler, Part::Schemathesis], &terminal)?;
    terminal.heading("build");
    workspace::build(&[&FLEET_PACKAGES[..], &[CONSOLE_PACKAGE]].concat()).await?;
    let state = StateDir::ephemeral()?;
    let result = unless_interrupted(Box::pin(with_services(options, &terminal, &state))).await;
    state.close().await?;
    result
}

async fn with_services(options: &Options, terminal: &Terminal, state: &Arc<StateDir>) -> anyhow::Result<()> {
    let start = async {
        let services = Services::start(Arc::clone(state)).await?;
        let builder = LocalFleet::builder().label("api-fuzz").on(&services).workers(1).cuda(Cuda::Emulated);
        anyhow::Ok(Box::pin(builder.start()).await?)
    };
    let fleet = terminal.steps().step_async("start a private fleet", start).await?;
    for number in 0..JOBS {
        workspace::run(submit(&fleet, number)?).await?;
    }
    let listen = ["--listen", "127.0.0.1:0"];
    let database = ("GPUFLEET_DATABASE_URL", fleet.endpoints().database_url.as_str());
    let api = serve("gpufleet-ledger", &[&["serve"], &listen[..]].concat(), &[database, ("GPUFLEET_API_TOKEN", TOKEN)])
        .await?;
    let broker = ("GPUFLEET_AMQP_URL", fleet.endpoints().amqp_url.as_str());
    let asks = [broker, ("GPUFLEET_API_URL", &api.url), ("GPUFLEET_API_TOKEN", TOKEN)];
    let console = serve("gpufleet-console", &listen, &asks).await?;
    terminal.heading("send requests to the read API");
    workspace::run(schemathesis(&api.url, &[], &[], options)?).await?;
    terminal.heading("send requests to the console");
    // The console needs no token on loopback. Of the API's pages, it serves only those with data.
    let console_url = format!("{}/api", console.url);
    let through = ["--url", &console_url, "--include-path-regex", "^/v1/"];
    let excluded = ["ignored_auth", "missing_required_header"];
    workspace::run(schemathesis(&api.url, &excluded, &through, options)?).await?;
    fleet.stop().await?;
    Ok(())
}

fn submit(fleet: &LocalFleet, number: u32) -> anyhow::Result<Command> {
    let mut submit = Command::new(workspace::programs()?.join("gpufleet"));
    submit.args(["submit", "saxpy", "--arg", "a=2.0", "--fill", "x=f32[4]:1", "--fill", "y=f32[4]:1"]);
    submit.args(["--label", &format!("run={number}")]).env("GPUFLEET_AMQP_URL", &fleet.endpoints().amqp_url);
    Ok(submit)
}

/// A running server, which ends when it is dropped.
struct Server {
    url: String,
    _process: Child,
}

async fn serve(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Server> {
    let mut command = Command::new(workspace::programs()?.join(program));
    command.args(arguments).envs(variables.iter().copied()).env("GPUFLEET_LOG", "info");
    command.stderr(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true);
    let mut process = command.spawn().with_context(|| format!("failed to start {program}"))?;
    let mut log = BufReader::new(process.stderr.take().context("its log is a pipe")?).lines();
    let address = async {
        while let Some(line) = log.next_line().await? {
            if let Some((_, rest)) = line.split_once("address=") {
                return Ok(rest.split(' ').next().unwrap_or_default().to_owned());
            }
        }
        bail!("{program} ended")
    };
    let address =
        timeout(STARTS_WITHIN, address).await.with_context(|| format!("{program} did not start in time"))??;
    // Keeps reading the log, because a full pipe would block the server.
    tokio::spawn(async move {
        while let Ok(Some(line)) = log.next_line().await {
            eprintln!("{line}")
        }
    });
    Ok(Server { url: format!("http://{address}"), _process: process })
}

/// Returns the command that runs all checks except these and one that our document can't satisfy.
fn schemathesis(api: &str, excluded: &[&str], more: &[&str], options: &Options) -> anyhow::Result<Command> {
    let interpreter = Part::Schemathesis.interpreter()?;
    let mut command = Command::new(interpreter);
    command.args(["-m", "schemathesis.cli", "run", &format!("{api}/openapi.json"), "--checks", "all", "--seed", SEED]);
    // The document can't describe which texts are valid page keys, because a key is opaque.
    let excluded = [&["positive_data_acceptance"][..], excluded].concat().join(",");
    command.args(["--exclude-checks", &excluded]).args(more);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}"), "--no-color"]);
    command.args(&options.arguments).current_dir(folder()?).env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    Ok(command)
}

/// Returns the folder in which schemathesis keeps notes about earlier runs.
fn folder() -> anyhow::Result<PathBuf> {
    let folder = workspace::target()?.join("api-fuzz");
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    Ok(folder)
}
