//! `gpufleet-local-s3`: serves a folder until a signal ends it.

use std::{fs, net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Parser;
use gpufleet_local_s3::{Credentials, Server};
use tokio::signal::unix::{SignalKind, signal};

/// Serve the folders in a folder as S3 buckets, for tests and local fleets
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Folder with one folder for each bucket
    folder: PathBuf,
    /// Address to listen on; with port 0, a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Access key id that requests are signed with
    #[arg(long, env = "AWS_ACCESS_KEY_ID", value_name = "ID")]
    access_key_id: String,
    /// Secret access key that requests are signed with
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true, value_name = "KEY")]
    secret_access_key: String,
    /// Bucket to create if it is missing; repeatable
    #[arg(long = "bucket", value_name = "NAME")]
    buckets: Vec<String>,
    /// File to create once the server accepts connections; it holds the URL
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let Options { access_key_id, secret_access_key, .. } = options;
    let credentials = Credentials { access_key_id, secret_access_key };
    for bucket in &options.buckets {
        let folder = options.folder.join(bucket);
        fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }
    let server = Server::start_on(options.listen, &options.folder, credentials)
        .with_context(|| format!("failed to serve {} on {}", options.folder.display(), options.listen))?;
    if let Some(file) = &options.ready_file {
        fs::write(file, server.endpoint()).with_context(|| format!("failed to write {}", file.display()))?;
    }
    println!("{}", server.endpoint());
    wait_for_the_end().context("failed to wait for a signal")
}

#[tokio::main(flavor = "current_thread")]
async fn wait_for_the_end() -> std::io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
