//! `cargo xtask test-containers`: runs numba-cuda in a container on a worker with an emulated device. The other tests of containers need no
//! Python, and are among those of `cargo xtask test`.

use std::fs;

use anyhow::{Context as _, ensure};
use gpufleet_local::{Cuda, ImageStore, LocalFleet, setup::Part, state::is_root};
use tokio::process::Command;

use crate::{
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

const IMAGE: &str = "localhost/numba:1";
/// The program, here and in the container.
const PROGRAM: &str = "tests/containers/saxpy.py";
const POOL: &str = "train:programs=1,program-isolation=podman";
/// What the program prints if it has computed on the device, in the container.
const EXPECTED: &str = "computed with local alone, as 65534 in /job";

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    ensure!(is_root(), "only root runs containers; run this as root");
    setup::ensure(&[Part::Services, Part::Containers, Part::NumbaCuda], &terminal)?;
    terminal.heading("build");
    workspace::build(&FLEET_PACKAGES).await?;
    terminal.heading("make the image");
    let folder = tempfile::tempdir_in(workspace::target()?).context("failed to create a folder for the images")?;
    let store = ImageStore::open(folder.path().join("store")).context("failed to create a store of images")?;
    let root = folder.path().join("root");
    let mut copy = Command::new("sh");
    copy.arg("tests/containers/numba.sh").current_dir(workspace::root());
    copy.env("PYTHON", Part::NumbaCuda.interpreter()?).env("ROOT", &root);
    workspace::run(copy).await?;
    store.import(IMAGE, &root).context("failed to make the image")?;
    fs::remove_dir_all(&root).context("failed to remove the files of the image")?;
    terminal.heading("run numba-cuda in a container");
    let fleet = LocalFleet::builder().label("containers").ledger(false).cuda(Cuda::Emulated).pools([POOL.to_owned()]);
    let fleet = fleet.bin_dir(workspace::programs()?);
    let fleet = fleet.worker_args(["--image", IMAGE, "--podman", &store.podman()]).start().await?;
    let printed = workspace::output_of(program(&fleet)?).await;
    fleet.stop().await?;
    let printed = printed?;
    ensure!(printed.contains(EXPECTED), "the program printed {printed:?}, but not {EXPECTED:?}");
    println!("{}", printed.trim());
    Ok(())
}

fn program(fleet: &LocalFleet) -> anyhow::Result<Command> {
    let mut command = Command::new(workspace::programs()?.join("gpufleet"));
    command.args(["run", "--on-worker", "--quiet", "--pool", "train", "--image", IMAGE]);
    command.args(["--upload", PROGRAM, "--", "python3", PROGRAM]);
    command.current_dir(workspace::root()).env("GPUFLEET_AMQP_URL", &fleet.endpoints().amqp_url);
    Ok(command)
}
