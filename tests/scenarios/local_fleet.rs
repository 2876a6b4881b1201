//! `gpufleet local`: a fleet that stays when its command has ended, is found by the others, and goes without a trace.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use gpufleet_local::{
    Signal,
    process::{Identity, marked},
    programs, state,
};
use gpufleet_tests::gpufleet_command;
use serde_json::Value;

/// Ends what is left of the fleet in this folder when an assertion fails.
struct Ends(PathBuf);

impl Ends {
    fn left(&self) -> Vec<Identity> {
        marked(state::MARKER, &self.0.to_string_lossy())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for identity in self.left() {
            identity.signal(Signal::Kill);
        }
    }
}

/// Settings of workers elsewhere, none of which would let one start here.
const ELSEWHERE: [(&str, &str); 7] = [
    ("GPUFLEET_POOLS", "not a pool"),
    ("GPUFLEET_DEVICES", "none such"),
    ("GPUFLEET_NVML", "/nowhere/libnvidia-ml.so"),
    ("GPUFLEET_TRUSTED_KEYS", "/nowhere/key.pub"),
    ("GPUFLEET_SANDBOX", "of another kind"),
    ("GPUFLEET_CACHE_SIZE", "much"),
    ("GPUFLEET_EXECUTOR_USER", "nobody-of-this-name"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_local_fleet_is_started_found_and_stopped() {
    let scratch = tempfile::tempdir().unwrap();
    // Root's Postgres, another user, has to pass through.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let dir = fs::canonicalize(scratch.path()).unwrap().join("fleet");
    let ends = Ends(dir.clone());
    let dir = dir.to_str().unwrap();
    let worker = programs::ours(None, "gpufleet-worker").unwrap();
    let found = [("GPUFLEET_LOCAL_DIR", dir), ("GPUFLEET_BIN_DIR", worker.parent().unwrap().to_str().unwrap())];
    let environment = [&found[..], &ELSEWHERE].concat();
    let gpufleet = async |arguments: &[&str]| {
        let ended = gpufleet_command(scratch.path(), &environment, arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.stdout
    };

    gpufleet(&["local", "up", "--dir", dir, "--cuda", "emulated"]).await;
    let status: Value = serde_json::from_str(&gpufleet(&["local", "status", "-o", "json"]).await).unwrap();
    assert_eq!(status["state"], "up", "{status}");
    let job = ["submit", "mandelbrot", "--arg", "width=8", "--arg", "height=8", "--arg", "centre_x=-0.5"];
    let more =
        ["--arg", "centre_y=0.0", "--arg", "step=0.3", "--arg", "max_iterations=50", "--out", "iterations=m.npy"];
    gpufleet(&[&job[..], &more].concat()).await;
    assert!(scratch.path().join("m.npy").exists());

    assert!(
        ends.left().len() >= 4,
        "broker, port mapper, Postgres, ledger; who is not root does not see into a worker"
    );
    gpufleet(&["local", "down"]).await;
    assert_eq!(ends.left(), []);
    assert!(gpufleet(&["local", "status"]).await.contains("no fleet runs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_become_a_fleet_is_bad_input() {
    let scratch = tempfile::tempdir().unwrap();
    let nothing = scratch.path().to_str().unwrap();
    let environment = [("GPUFLEET_BIN_DIR", nothing)];
    let ended = gpufleet_command(scratch.path(), &environment, &["local", "up", "--dir", "fleet"]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("gpufleet-worker") && ended.stderr.contains("GPUFLEET_BIN_DIR"), "{ended:?}");
}
