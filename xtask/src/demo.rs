//! `cargo xtask demo`: sets up a machine and runs three jobs, with the commands that a user would type.
//!
//! Everything is real: the services, the `gpufleet` command, the worker, the ledger. Each result is compared with a computation on this
//! machine's CPU that shares no code with the kernels.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use gpufleet_local::{Cuda, LocalFleet, Services, StateDir, setup::Part};

use crate::{
    interrupt::{interrupted, unless_interrupted},
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

mod check;
mod command;
mod files;
mod history;
mod picture;

use command::Gpufleet;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// What the worker computes on: auto (a GPU where there is one, else the emulated device), emulated, system, or a libcuda's path
    #[arg(long, default_value = "auto")]
    cuda: Cuda,
    /// How many workers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,
}

/// The demo's folder in the workspace, which git ignores.
const FOLDER: &str = ".gpufleet/demo";

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler], &terminal)?;
    terminal.heading("build gpufleet");
    workspace::build(&FLEET_PACKAGES).await?;
    let folder = workspace::root().join(FOLDER);
    workspace::fresh_folder(&folder)?;
    let state = StateDir::ephemeral_with_logs(&folder.join("log"))?;
    let result = unless_interrupted(Box::pin(with_services(options, &terminal, &state, &folder))).await;
    // Stops what is still running after an error or an interruption.
    state.close().await.context("failed to clean up")?;
    result?;
    eprintln!("\nThe pictures are in {}:", folder.display());
    for (file, what) in [
        ("photo.png", "the picture that was made for this demo"),
        ("edges.png", "its edges, by the kernel in edge.cu"),
        ("mandelbrot.png", "the Mandelbrot set, by a kernel of the catalog"),
    ] {
        eprintln!("  {file:<16}{what}");
    }
    eprintln!(
        "The whole demo took {:.1} s. Nothing is left running; the logs are in {FOLDER}/log.",
        terminal.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn with_services(
    options: &Options,
    terminal: &Terminal,
    state: &Arc<StateDir>,
    folder: &Path,
) -> anyhow::Result<()> {
    let start = Services::start(Arc::clone(state));
    let services = terminal
        .steps()
        .step_async("start a private RabbitMQ and Postgres", start)
        .await
        .context("failed to start services")?;
    let fleet = LocalFleet::builder().on(&services).label("demo").workers(options.workers).cuda(options.cuda.clone());
    let fleet = fleet
        .bin_dir(workspace::programs()?)
        .start_with(terminal.steps())
        .await
        .context("failed to start the fleet")?;
    let jobs = jobs(terminal, &fleet, folder).await;
    let stop = async {
        fleet.stop().await?;
        services.stop().await
    };
    tokio::select! {
        stopped = terminal.steps().step_async("stop the fleet", stop) => stopped.context("failed to stop the fleet")?,
        again = interrupted() => return Err(again.into()),
    }
    jobs
}

async fn jobs(terminal: &Terminal, fleet: &LocalFleet, folder: &Path) -> anyhow::Result<()> {
    let gpufleet = Gpufleet::new(fleet, folder)?;
    terminal.heading("The input: two arrays of a million floats, a picture and a kernel");
    gpufleet.show(&["init", "--demo", "."]).await?;
    let photo = picture::read_rgb(&folder.join("photo.png"))?;
    let [x, y] = ["x.npy", "y.npy"].map(|name| files::read_npy(&folder.join(name), "<f4", f32::from_le_bytes));
    let (x, y) = (x?, y?);

    terminal.heading("1. A kernel of the catalog: y = 2 x + y over a million floats");
    gpufleet
        .show(&["submit", "saxpy", "--arg", "a=2.0", "--in", "x=x.npy", "--inout", "y=y.npy", "--out", "y=result.npy"])
        .await?;
    terminal.steps().step("compare result.npy with the CPU's", || check::saxpy(folder, &x, y))?;

    terminal.heading("2. Your own CUDA C: an edge filter over a picture (edge.cu)");
    let (width, height) = (photo.width, photo.height);
    let cover = format!("{width},{height}");
    let out = format!("drawing=edges.png:u8[{height},{width}]");
    let arguments = format!("photo,drawing,height:u32={height},width:u32={width}");
    gpufleet
        .show(&[
            "submit",
            "--source",
            "edge.cu",
            "--entry",
            "edges",
            "--cover",
            &cover,
            "--block",
            "16,16",
            "--in",
            "photo=photo.png",
            "--out",
            &out,
            "--args",
            &arguments,
        ])
        .await?;
    terminal.steps().step("compare edges.png with the CPU's", || check::edges(folder, &photo))?;

    terminal.heading("3. A picture out of nothing: the Mandelbrot set");
    let view = check::VIEW;
    let arguments = [
        format!("width={}", view.width),
        format!("height={}", view.height),
        format!("centre_x={}", view.centre_x),
        format!("centre_y={}", view.centre_y),
        format!("step={}", view.step),
        format!("max_iterations={}", check::ITERATIONS_MAX),
    ];
    let mut line = vec!["submit", "mandelbrot"];
    line.extend(arguments.iter().flat_map(|argument| ["--arg", argument]));
    line.extend(["--out", "iterations=mandelbrot.npy"]);
    gpufleet.show(&line).await?;
    terminal.steps().step("compare mandelbrot.npy with the CPU's, and colour it", || check::mandelbrot(folder))?;

    terminal.heading("What the ledger recorded");
    terminal.steps().step_async("wait until the ledger has all three", history::complete(&gpufleet, 3)).await?;
    gpufleet.show(&["history"]).await
}
