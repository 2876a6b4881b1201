//! `gpufleet-bench bucket`: uploads a large blob to an S3 bucket and downloads it, next to curl against the same
//! server.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, ensure};
use gpufleet_blobs::{BlobLocation, BlobStore};
use gpufleet_local_s3::Server;

use crate::{
    machine::{self, Machine},
    stats::Spread,
    table::{spread, table},
};

const BUCKET: &str = "bench";
const OF_CURL_MIN: f64 = 0.8;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Size of the blob in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    mib: u32,
    /// Rounds, the two taking turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
}

/// The MiB/s of a round.
#[derive(Debug, Clone, Copy)]
struct Round {
    put: Rates,
    get: Rates,
}

#[derive(Debug, Clone, Copy)]
struct Rates {
    curl: f64,
    gpufleet: f64,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let machine = Machine::look("no broker".to_owned(), machine::load());
    let folder = tempfile::tempdir()?;
    let objects = folder.path().join("objects");
    fs::create_dir(&objects)?;
    let server = Server::start(&objects)?;
    server.create_bucket(BUCKET)?;
    let credentials = server.credentials();
    let location: BlobLocation = format!("s3://{BUCKET}?endpoint={}", server.endpoint()).parse()?;
    let location = location.with_credentials(&credentials.access_key_id, &credentials.secret_access_key);
    let store = BlobStore::open(location).await?;
    let mut rounds = Vec::new();
    for round in 0..=options.repeat {
        eprintln!("round {round} of {} …", options.repeat);
        rounds.push(one_round(options, folder.path(), &server, &store).await?);
    }
    println!(
        "{}\n{} MiB; medians of {} rounds, with the lowest and highest in parentheses\n",
        machine.line(),
        options.mib,
        options.repeat
    );
    // The first round only warms up.
    print(&rounds[1..]);
    Ok(())
}

async fn one_round(options: &Options, folder: &Path, server: &Server, store: &BlobStore) -> anyhow::Result<Round> {
    let (sent, received) = (folder.join("sent"), folder.join("received"));
    let bytes = u64::from(options.mib) << 20;
    // Random bytes, so that the store does not have the blob already.
    std::io::copy(&mut File::open("/dev/urandom")?.take(bytes), &mut File::create(&sent)?)?;
    let url = format!("{}/{BUCKET}/curl", server.endpoint());
    let rate = |started: Instant| f64::from(options.mib) / started.elapsed().as_secs_f64();

    let started = Instant::now();
    curl(server, &["--upload-file", path(&sent)?, &url])?;
    let curl_put = rate(started);
    let started = Instant::now();
    let digest = store.put_file(File::open(&sent)?, 0..bytes).await?;
    let put = Rates { curl: curl_put, gpufleet: rate(started) };

    let started = Instant::now();
    curl(server, &["--output", path(&received)?, &url])?;
    let curl_get = rate(started);
    let started = Instant::now();
    store.read_to(digest, bytes, File::create(&received)?).await?;
    let get = Rates { curl: curl_get, gpufleet: rate(started) };
    store.remove(digest).await?;
    Ok(Round { put, get })
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the folder's name is not UTF-8")
}

/// Runs curl. It reads the key from its standard input.
fn curl(server: &Server, arguments: &[&str]) -> anyhow::Result<()> {
    let credentials = server.credentials();
    let mut curl = Command::new("curl")
        .args(["--config", "-", "--silent", "--show-error", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3"])
        .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .context("failed to run curl")?;
    let user = format!("user = \"{}:{}\"\n", credentials.access_key_id, credentials.secret_access_key);
    curl.stdin.take().expect("its input is piped").write_all(user.as_bytes())?;
    let status = curl.wait()?;
    ensure!(status.success(), "curl ended with {status}");
    Ok(())
}

fn print(rounds: &[Round]) {
    let mut table = table(["MiB/s", "curl", "gpufleet", "ratio", "bar"]);
    for (name, part) in [("to the bucket", (|round| round.put) as fn(&Round) -> Rates), ("from it", |round| round.get)]
    {
        let of = |figure: fn(Rates) -> f64| Spread::of_rounds(rounds.iter().map(|round| figure(part(round))));
        let ratio = of(|rates| rates.gpufleet / rates.curl);
        let verdict = if ratio.median >= OF_CURL_MIN { "reached" } else { "missed" };
        table.add_row([
            name.to_owned(),
            spread(&of(|rates| rates.curl), 0),
            spread(&of(|rates| rates.gpufleet), 0),
            spread(&ratio, 2),
            format!("{OF_CURL_MIN}: {verdict}"),
        ]);
    }
    println!("{table}");
}
