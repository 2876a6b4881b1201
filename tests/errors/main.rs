//! Every error that a user can cause, in one readable snapshot: `errors.snap` in this folder.
//!
//! `offline.txt` lists commands that need no service, `online.txt` those that use a broker, a database or a worker.
//! `doomed.rs` has jobs that a fleet refuses or dead-letters, `stored.rs` has jobs whose arrays are missing. Each
//! command runs as a user runs it. The snapshot has the command, its standard error, and its exit code. After a text
//! has changed, run `INSTA_UPDATE=always cargo test -p gpufleet-tests --test errors`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod cases;
mod doomed;
mod files;
mod online;
mod stage;
mod stored;

use cases::{Cases, Masks};

#[tokio::test(flavor = "multi_thread")]
async fn every_error_that_a_user_can_cause_says_what_failed_why_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    files::write_all(folder.path());
    let masks = Masks::of_this_machine().hiding(folder.path().to_str().unwrap(), "~");
    let without_services = Cases::read(include_str!("offline.txt"));
    let (offline, online, doomed, stored) = tokio::join!(
        without_services.run(folder.path(), &[], &masks),
        online::run(folder.path(), masks.clone()),
        doomed::run(folder.path(), masks.clone()),
        stored::run(folder.path(), masks.clone()),
    );
    let text = [offline, online, doomed, stored].concat();
    assert!(!text.contains("panicked"), "{text}");
    insta::with_settings!({ snapshot_path => ".", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("errors", text);
    });
}
