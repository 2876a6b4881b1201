//! `gpufleet-bench console`: measures how fast the read API answers the requests of the console's pages with a large ledger, and how many
//! statements per second the database executes without a viewer, with one, and with fifty.

mod ledger;
mod viewers;

use std::{
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use gpufleet_local::{Postgres, StateDir, programs as local_programs};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{machine, programs, stats::percentile, table::table};

const DATABASE: &str = "bench";
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// The number of requests before the measured ones of a page, so that its blocks are in the cache.
const WARM_UP: usize = 20;
const TOKEN: &str = "token-of-gpufleet-bench";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs in the ledger, over 24 months
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(10_000..=100_000_000))]
    jobs: u32,
    /// Requests of each page
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    requests: u32,
    /// Viewers at a time
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    viewers: u32,
    /// How long statements are counted each time
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(10..=3600))]
    seconds: u32,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    programs::build()?;
    gpufleet_transport::install_tls();
    eprintln!("load average before: {:.2}", machine::load());
    let state = StateDir::ephemeral()?;
    let measured = measure(options, &state).await;
    state.close().await?;
    measured
}

async fn measure(options: &Options, state: &Arc<StateDir>) -> anyhow::Result<()> {
    let postgres = Postgres::start(state).await?;
    let job = ledger::fill(&postgres, DATABASE, options.jobs).await?;
    let url = postgres.url(DATABASE);
    let api =
        Server::start("gpufleet-ledger", &["serve"], &[("GPUFLEET_DATABASE_URL", &url), ("GPUFLEET_API_TOKEN", TOKEN)])
            .await?;
    pages(&api.url, &job, options).await?;
    drop(api);
    // The database logs each statement of this server.
    let logged = format!("{url}&options[log_min_duration_statement]=0");
    let api = Server::start(
        "gpufleet-ledger",
        &["serve"],
        &[("GPUFLEET_DATABASE_URL", &logged), ("GPUFLEET_API_TOKEN", TOKEN)],
    )
    .await?;
    let console = Server::start("gpufleet-console", &["--api", &api.url], &[("GPUFLEET_API_TOKEN", TOKEN)]).await?;
    viewers::count(&console.url, &state.log("postgres"), options).await?;
    drop((console, api));
    postgres.stop().await?;
    Ok(())
}

/// Requests each page repeatedly, and prints how long the answers took.
async fn pages(api: &str, job: &str, options: &Options) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut rows = table(["page of the read API", "p50 ms", "p95 ms", "longest ms"]);
    for (name, paths) in ledger::pages(job) {
        let mut took = Vec::new();
        for number in 0..WARM_UP + options.requests as usize {
            let url = format!("{api}{}", paths[number % paths.len()]);
            let begun = Instant::now();
            let answer = client.get(&url).bearer_auth(TOKEN).send().await?;
            let status = answer.status();
            let body = answer.text().await?;
            ensure!(status.is_success(), "{url}: {status}: {body}");
            if number >= WARM_UP {
                took.push(begun.elapsed());
            }
        }
        let ms = |percent| format!("{:.1}", percentile(&took, percent).as_secs_f64() * 1e3);
        rows.add_row([name.to_owned(), ms(50.0), ms(95.0), ms(100.0)]);
    }
    println!("{} jobs, {} requests of each page, one at a time\n{rows}", options.jobs, options.requests);
    Ok(())
}

/// A running server on loopback, which ends when it is dropped.
struct Server {
    url: String,
    _process: Child,
}

impl Server {
    async fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let mut command = Command::new(local_programs::ours(None, program)?);
        command.args(arguments).args(["--listen", "127.0.0.1:0"]).env_remove("GPUFLEET_AMQP_URL");
        command.envs(variables.iter().copied()).env("GPUFLEET_LOG", "info");
        command.stderr(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().with_context(|| format!("failed to start {program}"))?;
        let mut log = BufReader::new(process.stderr.take().context("its log is a pipe")?).lines();
        let address = async {
            while let Some(line) = log.next_line().await? {
                if let Some((_, rest)) = line.split_once("address=") {
                    return Ok(rest.split(' ').next().unwrap_or_default().to_owned());
                }
            }
            anyhow::bail!("{program} ended")
        };
        let address = timeout(STARTS_WITHIN, address).await.with_context(|| format!("{program} did not start"))??;
        // Keeps reading the log, because a full pipe would block the server.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Ok(Self { url: format!("http://{address}"), _process: process })
    }
}
