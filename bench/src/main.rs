//! Benchmarks of gpufleet. Each has a baseline in the same run on the same broker.
//!
//! This package is the stated exception to "only `transport` uses lapin": the baseline is a bare lapin loop, as a developer without
//! gpufleet would write it. gpufleet itself is measured through its client library, like that of any producer.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod affinity;
mod arrays;
mod bare;
mod chaos;
mod comparison;
mod cores;
mod fleet;
mod ground;
mod inputs;
mod machine;
mod overhead;
mod programs;
mod python;
mod python_package;
mod recording;
mod report;
mod rest;
mod round_trips;
mod saxpy;
mod shared_input;
mod sharing;
mod sleepers;
mod stats;
mod table;
mod usage;

/// Benchmarks of gpufleet against baselines in the same run
#[derive(Debug, Parser)]
#[command(name = "gpufleet-bench", version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Round trips of small saxpy jobs: through gpufleet's client, from producers without it, through Celery, and in a bare loop over the broker
    RoundTrips(round_trips::Options),
    /// Jobs, some of which fault, hang or ask for too much memory: all others must succeed; prints the gaps after killed executors
    Chaos(chaos::Options),
    /// What a worker adds to a tiny warm job, from its delivery to its reply
    Overhead(overhead::Options),
    /// Jobs that sleep: device time of pools by weight, a guaranteed pool next to a flood, jobs per second over 1, 2 and 4 workers
    Sharing(sharing::Options),
    /// Arrays of 1 MiB to jobs and back: in messages, by reference, and in a bare loop over the broker
    Arrays(arrays::Options),
    /// Jobs that share one large input, with and without resident inputs
    Inputs(inputs::Options),
    /// Jobs over several large inputs on several workers, with and without affinity slots
    Affinity(affinity::Options),
    /// Equal small jobs through gpufleet, Celery, Ray and Slurm: latency, throughput, a killed worker, history, memory
    Comparison(comparison::Options),
    /// The Python package next to the Rust client: throughput, CPU, latency, memory
    Python(python_package::Options),
    /// Events per second that are written into the ledger's tables: on one connection with and without statistics, and on two
    Recording(recording::Options),
    /// The far end of the bare loop, started by `round-trips` as a process of its own
    #[command(hide = true)]
    BareConsumer(bare::consumer::Options),
}

/// One thread, like the fleet's programs. The bare loop runs here too.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        Command::RoundTrips(options) => round_trips::run(&options).await,
        Command::Chaos(options) => chaos::run(&options).await,
        Command::Overhead(options) => overhead::run(&options).await,
        Command::Sharing(options) => Box::pin(sharing::run(&options)).await,
        Command::Arrays(options) => Box::pin(arrays::run(&options)).await,
        Command::Python(options) => Box::pin(python_package::run(&options)).await,
        Command::Inputs(options) => Box::pin(inputs::run(&options)).await,
        Command::Affinity(options) => Box::pin(affinity::run(&options)).await,
        Command::Comparison(options) => Box::pin(comparison::run(&options)).await,
        Command::Recording(options) => recording::run(&options).await,
        Command::BareConsumer(options) => bare::consumer::run(&options).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
