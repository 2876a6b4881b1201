//! Each error at the start ends the program with its own exit code and one clear message without a password.

use crate::ground::{Ground, Run};

fn check(run: &Run, code: i32, says: &str) {
    assert_eq!(run.code, Some(code), "{}", run.log);
    assert!(run.log.contains(says), "{}", run.log);
    assert!(!run.log.contains("canary"), "{}", run.log);
    assert!(!run.log.contains("panicked"), "{}", run.log);
}

/// Returns the URL with another password.
fn with_password(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (login, place) = rest.split_once('@').unwrap();
    format!("{scheme}://{}:{password}@{place}", login.split(':').next().unwrap())
}

#[tokio::test]
async fn each_error_at_the_start_has_its_exit_code() {
    let mut ground = Ground::empty().await;
    check(&ground.run(&["record", "--no-such-option"]).await, 2, "--no-such-option");
    check(&ground.run(&["record"]).await, 11, "create them with `gpufleet-ledger migrate`");
    check(&ground.run(&["migrate"]).await, 0, "tables upgraded");
    // A wait that no clock can represent.
    check(&ground.run(&["migrate", "--wait", "500000000000years"]).await, 0, "tables are already up to date");

    let right = ground.amqp_url.clone();
    ground.amqp_url = with_password(&right, "canary");
    check(&ground.run(&["record"]).await, 7, "user or password");
    ground.amqp_url = "canary".to_owned();
    check(&ground.run(&["record"]).await, 2, "amqp://");
    ground.amqp_url = right;

    ground.database_url = "postgres://canary:canary@127.0.0.1:1/x?passwort=canary".to_owned();
    check(&ground.run(&["record"]).await, 2, "passwort");
    ground.database_url = "postgres://ann:canary@127.0.0.1:1/fleet".to_owned();
    check(&ground.run(&["migrate", "--wait", "0s"]).await, 8, "check that Postgres is running");
}

#[tokio::test]
async fn a_wrong_database_password_or_name_is_refused_at_once() {
    let (mut ground, postgres) = Ground::with_own_database().await;
    ground.database_url = with_password(&postgres.tcp_url("ledger"), "canary");
    check(&ground.run(&["record"]).await, 8, "check the user and the password");
    ground.database_url = postgres.tcp_url("absent");
    check(&ground.run(&["migrate"]).await, 8, "createdb");
}

#[tokio::test]
async fn serve_refuses_to_show_all_jobs_to_everyone() {
    let mut ground = Ground::empty().await;
    check(&ground.run(&["serve", "--listen", "0.0.0.0:0"]).await, 2, "without a token");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "# no token\n").unwrap();
    let path = file.to_str().unwrap();
    check(&ground.run(&["serve", "--token-file", path]).await, 2, "there is no token in it");
    std::fs::write(&file, "canary\n").unwrap();
    check(&ground.run(&["serve", "--token-file", path]).await, 2, "line 1 has fewer than 16 characters");
    check(&ground.run(&["serve", "--token-file", "/absent"]).await, 2, "read the tokens in /absent");
    check(&ground.run(&["serve", "--api-token", "canary"]).await, 2, "could be guessed");
    check(&ground.run(&["serve"]).await, 11, "create them with `gpufleet-ledger migrate`");
    ground.database_url = "postgres://canary:canary@127.0.0.1:1/x?passwort=canary".to_owned();
    check(&ground.run(&["serve"]).await, 2, "passwort");
}
