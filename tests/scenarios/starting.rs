//! `gpufleet init` writes a project that runs without changes.

use std::fs;

use gpufleet_local::programs;
use gpufleet_tests::{Ground, WAIT, gpufleet_command};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_script_of_a_new_project_runs_its_kernel() {
    let (ground, _worker) = Ground::with_worker("init").await;
    let folder = tempfile::tempdir().unwrap();
    gpufleet_command(folder.path(), &[], &["init", "blend"]).await.ok();

    let gpufleet = programs::ours(None, "gpufleet").unwrap();
    let path = format!("{}:{}", gpufleet.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut script = Command::new("sh");
    script.arg("blend/run.sh").current_dir(folder.path()).env("PATH", path);
    script.env("GPUFLEET_AMQP_URL", &ground.endpoints().amqp_url).kill_on_drop(true);
    let ended = tokio::time::timeout(WAIT, script.output()).await.expect("the script ends").unwrap();
    assert!(ended.status.success(), "{ended:?}");

    let file = fs::read(folder.path().join("blend/y.npy")).unwrap();
    let (_, elements) = file.split_at(file.len() - 4 * 1024);
    // A quarter of 4 plus three quarters of 8.
    assert!(elements.chunks_exact(4).all(|element| element == 7.0_f32.to_le_bytes()));

    let again = gpufleet_command(folder.path(), &[], &["init", "blend"]).await;
    assert_eq!(again.code, 3, "{again:?}");
    assert!(again.stderr.contains("exists already"), "{again:?}");
}
