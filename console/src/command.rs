//! The life of the program: configuration, logging, listening, serving, clean shutdown.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use axum::Router;
use clap::{CommandFactory as _, Parser as _};
use gpufleet_service::{
    logging,
    server::{self as http, Pages},
    signals,
};
use tracing::{info, warn};

use crate::{config::Config, options::Options, server};

/// The command line's definition, from which its reference page is generated.
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    let options = Options::parse();
    logging::start(options.log_format);
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, error }) => {
            eprintln!("gpufleet-console: failed to {error:#}");
            code.into()
        }
    }
}

struct Failure {
    code: u8,
    error: anyhow::Error,
}

fn usage(error: anyhow::Error) -> Failure {
    Failure { code: 2, error }
}

fn internal(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: 1, error: error.into() }
}

fn run(options: &Options) -> Result<(), Failure> {
    let config = Config::of(options).map_err(usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(internal)?;
    runtime.block_on(serve(config, options.ready_file.clone()))
}

async fn serve(config: Config, ready_file: Option<PathBuf>) -> Result<(), Failure> {
    let stop = signals::stop().map_err(internal)?;
    let (listener, address) = http::listen(config.listen)
        .await
        .with_context(|| format!("listen on {}; choose another address or port with --listen", config.listen))
        .map_err(usage)?;
    let (identity, actions) = (config.access.described(), config.actions);
    let (router, actions_running) = server::start(config, stop.clone()).await.map_err(usage)?;
    info!(version = env!("CARGO_PKG_VERSION"), %address, identity, actions, "serving the console");
    let ready = ready_file.map(|file| ReadyFile::write(file, &format!("http://{address}/"))).transpose();
    let _ready = ready.map_err(internal)?;
    http::serve(listener, Pages { all: router, health: Router::new() }, stop).await;
    actions_running.close();
    actions_running.wait().await;
    info!("stopped");
    Ok(())
}

/// A file that exists while the console serves.
struct ReadyFile(PathBuf);

impl ReadyFile {
    fn write(path: PathBuf, url: &str) -> io::Result<Self> {
        // A reader never sees an empty file.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, url)?;
        std::fs::rename(&partial, &path)?;
        Ok(Self(path))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        warn!(%error, "ready file not removed");
    }
}
