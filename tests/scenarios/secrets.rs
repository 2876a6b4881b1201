//! A password never appears in logs, errors, help or the effective configuration. (fault 49)

use std::fs;

use gpufleet_tests::{Ground, WAIT, gpufleet_command, kernels};

#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_shows_a_password() {
    let ground = Ground::breakable("secrets").await;
    let _worker = ground.worker().await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    ground.check_history(1).await;
    let passwords: Vec<String> = [&ground.endpoints().amqp_url, &ground.endpoints().database_url]
        .into_iter()
        .filter_map(|url| Some(url.split_once("://")?.1.split_once('@')?.0.split_once(':')?.1.to_owned()))
        .collect();
    assert!(
        !passwords.is_empty() && passwords.iter().all(|password| password.len() > 8),
        "the services have passwords to look for"
    );
    let mut looked_at = 0;
    for entry in fs::read_dir(ground.fleet().logs()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&text);
        looked_at += 1;
        for password in &passwords {
            assert!(!text.contains(password), "{} shows a password", path.display());
        }
    }
    assert!(looked_at >= 3, "worker, ledger and services have logs");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let canary = "canary-7f3a";
    let amqp = format!("amqp://user:{canary}@127.0.0.1:1/vhost");
    let database = format!("postgres://user:{canary}@127.0.0.1:1/database");
    let environment = [("GPUFLEET_AMQP_URL", amqp.as_str()), ("GPUFLEET_DATABASE_URL", database.as_str())];
    for arguments in [
        &["submit", "mandelbrot", "--detach"][..],
        &["history"],
        &["show", "0190a5b8-7c00-7000-8000-000000000001"],
        &["submit", "--help"],
        &["history", "--help"],
    ] {
        let ended = gpufleet_command(folder.path(), &environment, arguments).await;
        assert!(!ended.stdout.contains(canary) && !ended.stderr.contains(canary), "{arguments:?}: {ended:?}");
    }
}
