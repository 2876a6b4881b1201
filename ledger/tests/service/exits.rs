//! Each error at the start ends the program with its own exit code and one clear message without a password.

use crate::ground::{Ground, Run};

fn check(run: &Run, code: i32, says: &str) {
    assert_eq!(run.code, Some(code), "{}", run.log);
    assert!(run.log.contains(says), "{}", run.log);
    assert!(!run.log.contains("canary"), "{}", run.log);
    assert!(!run.log.contains("panicked"), "{}", run.log);
}

/// The URL with another password.
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
    // Beyond the range of any clock.
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
