//! Jobs whose arrays are missing from the workers' blob store. The fleet retries them for half a minute, so they run
//! concurrently with the other cases.

use std::{fs, path::Path};

use gpufleet_tests::Ground;
use tokio::join;

use crate::{cases::Masks, stage::Stage};

const LOCKED: &str =
    "$ gpufleet submit saxpy --arg a=2 --in x=big.npy --zeros y=f32[262144] --pool stored --blobs locked\n";
const MISSING: &str =
    "$ gpufleet submit saxpy --arg a=2 --in x=big.npy --zeros y=f32[262144] --pool stored --blobs elsewhere\n";
/// Submits a job whose task file names a blob with a damaged file in the store.
const DAMAGED: &str = "$ gpufleet submit -f damaged.json\n";
/// Submits a job with affinity to a pool in which no worker offers it.
const SLOTLESS: &str = "$ gpufleet submit saxpy --arg a=2 --in x=big.npy --zeros y=f32[262144] --pool stored --blobs elsewhere --affinity\n";
/// Submits a job to a worker whose store was deleted.
const UNPLUGGED: &str = "$ gpufleet submit saxpy --arg a=2 --in x=big.npy --zeros y=f32[262144] --pool unplugged \
    --blobs elsewhere --queue-limit 5s\n";

pub async fn run(folder: &Path, masks: Masks) -> String {
    let ground = Ground::shared("errors-stored").await;
    let stage = Stage::on(&ground, folder, masks).await;
    let path = |name: &str| folder.join(name).display().to_string();
    let (store, unplugged) = (path("store"), path("unplugged"));
    let (stored, unplugged_pool) =
        (["--pool", "stored", "--blobs", &store], ["--pool", "unplugged", "--blobs", &unplugged]);
    let _workers = join!(ground.worker_with(&stored), ground.worker_with(&unplugged_pool));
    fs::remove_dir(&unplugged).unwrap();
    let (locked, missing, damaged, slotless, unplugged) =
        join!(stage.run(LOCKED), stage.run(MISSING), stage.run(DAMAGED), stage.run(SLOTLESS), stage.run(UNPLUGGED));
    [locked, missing, damaged, slotless, unplugged].concat()
}
