//! The `gpufleet` command as a user runs it: input files, output files, history, and for each invalid input one clear
//! message with a next step and the documented exit code.

use std::{fs, path::Path};

use gpufleet_local::{Signal, programs};
use gpufleet_tests::{Ground, WAIT, gpufleet_command, npy};
use serde_json::Value;
use tokio::process::Command;

/// Writes a NumPy file with a vector of floats.
fn write_floats(path: &Path, values: &[f32]) {
    let elements: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(path, npy("<f4", &format!("({},)", values.len()), &elements)).unwrap();
}

fn floats_at_end(path: &Path, count: usize) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let data = &bytes[bytes.len() - 4 * count..];
    data.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

const SAXPY: [&str; 8] = ["saxpy", "--arg", "a=2.0", "--in", "x=x.npy", "--inout", "y=y.npy", "--out=y=result.npy"];

fn submit<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["submit"], &SAXPY[..], more].concat()
}

fn folder_with_vectors() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_floats(&folder.path().join("x.npy"), &[1.0, 2.0, 3.0]);
    write_floats(&folder.path().join("y.npy"), &[10.0, 20.0, 30.0]);
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reads_and_writes_files_and_appears_in_the_history() {
    let (ground, _worker) = Ground::with_worker("command").await;
    let folder = folder_with_vectors();

    let empty = ground.gpufleet(folder.path(), &["history", "-o", "json"]).await;
    assert_eq!(empty.json(), Value::Array(vec![]));

    ground.gpufleet(folder.path(), &submit(&["--label", "team=a"])).await.ok();
    assert_eq!(floats_at_end(&folder.path().join("result.npy"), 3), [12.0, 24.0, 36.0]);

    let detached = [&["submit"], &SAXPY[..7], &["--detach"]].concat();
    let detached = ground.gpufleet(folder.path(), &detached).await.ok();
    let id = detached.stdout.trim();
    assert_eq!(id.len(), 36, "stdout has only the id: {detached:?}");
    ground.final_job(id.parse().unwrap()).await;
    ground.check_history(2).await;

    let history = ground.gpufleet(folder.path(), &["history", "-o", "json"]).await.json();
    let states: Vec<_> = history.as_array().unwrap().iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["succeeded", "succeeded"]);
    let labelled = ground.gpufleet(folder.path(), &["history", "--label", "team=a", "-o", "json"]).await.json();
    assert_eq!(labelled.as_array().unwrap().len(), 1);
    let csv = ground.gpufleet(folder.path(), &["history", "-o", "csv"]).await;
    assert_eq!(csv.stdout.lines().count(), 3, "a header and two jobs: {csv:?}");
    let table = ground.gpufleet(folder.path(), &["history"]).await;
    assert!(table.stdout.contains("saxpy") && table.stdout.contains("succeeded"), "{table:?}");

    let shown = ground.gpufleet(folder.path(), &["show", id]).await;
    assert!(shown.stdout.contains("emulator") && shown.stdout.contains("queue"), "{shown:?}");
    let shown = ground.gpufleet(folder.path(), &["show", id, "-o", "json"]).await.json();
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1, "{shown}");
}

/// Runs the command with a bad input, and checks its exit code and the texts in its error.
async fn complains(ground: &Ground, folder: &Path, arguments: &[&str], code: i32, says: &[&str]) {
    let ended = ground.gpufleet(folder, arguments).await;
    assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
    assert_eq!(ended.stdout, "", "{arguments:?}: errors go to stderr");
    for word in says {
        assert!(ended.stderr.contains(word), "{arguments:?} should say {word:?}:\n{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked") && !ended.stderr.contains("stack backtrace"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_input_gets_one_clear_message() {
    let ground = Ground::shared("bad-input").await;
    let folder = folder_with_vectors();
    let folder = folder.path();
    write_floats(&folder.join("long.npy"), &[1.0; 5]);
    fs::write(folder.join("noise.npy"), b"not NumPy").unwrap();
    fs::write(folder.join("k.ptx"), ".version 8.0\n").unwrap();
    let ptx = ["submit", "--ptx", "k.ptx", "--entry", "k", "--zeros", "y=f32[4]", "--args", "y"];

    complains(&ground, folder, &["submit", "saxpi", "--detach"], 3, &["saxpi", "did you mean saxpy"]).await;
    complains(
        &ground,
        folder,
        &["submit", "saxpy", "--in", "x=x.npy", "--inout", "y=y.npy"],
        3,
        &["arguments.a", "saxpy("],
    )
    .await;
    complains(&ground, folder, &submit(&["--arg", "b=1"]), 3, &["arguments.b", "saxpy("]).await;
    complains(&ground, folder, &submit(&["--in", "z=x.npy"]), 3, &["buffers.z"]).await;
    let shapes = ["submit", "saxpy", "--arg", "a=2", "--in", "x=long.npy", "--inout", "y=y.npy"];
    complains(&ground, folder, &shapes, 3, &["5", "3"]).await;
    let missing = ["submit", "saxpy", "--arg", "a=2", "--in", "x=missing.npy", "--inout", "y=y.npy"];
    complains(&ground, folder, &missing, 3, &["missing.npy"]).await;
    let noise = ["submit", "saxpy", "--arg", "a=2", "--in", "x=noise.npy", "--inout", "y=y.npy"];
    complains(&ground, folder, &noise, 3, &["noise.npy"]).await;
    fs::write(folder.join("short.bin"), [0; 8]).unwrap();
    let short = ["submit", "saxpy", "--arg", "a=2", "--in", "x=short.bin:f32[3]", "--inout", "y=y.npy"];
    complains(&ground, folder, &short, 3, &["short.bin", "8", "12"]).await;
    fs::write(folder.join("doubles.bin"), [0; 24]).unwrap();
    let dtype = ["submit", "saxpy", "--arg", "a=2", "--in", "x=doubles.bin:f64[3]", "--inout", "y=y.npy"];
    complains(&ground, folder, &dtype, 3, &["f64", "f32"]).await;
    complains(&ground, folder, &[&ptx[..], &["--grid", "0"]].concat(), 2, &["grid"]).await;
    complains(&ground, folder, &[&ptx[..], &["--grid", "1", "--block", "4096"]].concat(), 3, &["block"]).await;
    complains(&ground, folder, &["show", "0190a5b8-7c00-7000-8000-000000000009"], 9, &["0190a5b8"]).await;
    complains(&ground, folder, &["history", "--state", "gone"], 2, &["gone"]).await;
    complains(&ground, folder, &["nonsense"], 2, &["nonsense"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_pool_without_workers_names_the_pool_and_times_out() {
    let ground = Ground::shared("no-worker").await;
    let folder = folder_with_vectors();
    ground.declare_pools(&["empty"]).await;
    // The timeout is long enough for the submission itself on a busy machine.
    let ended = ground.gpufleet(folder.path(), &submit(&["--pool", "empty", "--timeout", "10s"])).await;
    assert_eq!(ended.code, 6, "{ended:?}");
    assert!(ended.stderr.contains("empty") && ended.stderr.contains("worker"), "{ended:?}");
    assert!(ended.stderr.contains("gpufleet show"), "the error says how to find the job: {ended:?}");
}

/// Workers declare the queues of their pools, and producers declare none.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_a_pool_without_queues_is_refused_with_advice() {
    let ground = Ground::shared("no-queue").await;
    let folder = folder_with_vectors();
    let ended = ground.gpufleet(folder.path(), &submit(&["--pool", "mistyped"])).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    for part in ["pool mistyped has no queue", "no worker has ever served it", "gpufleet-worker run --pool mistyped"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    ground.poll_no_reply_queue().await;
}

/// On this broker no worker has declared anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_before_the_first_worker_names_the_missing_exchange_or_queue() {
    let ground = Ground::shared("bare-vhost").await;
    let vhost = format!("{}-bare", ground.fleet().space());
    ground.services().broker().create_vhost(&vhost).await.unwrap();
    let url = ground.services().broker().vhost_url(&vhost);
    let folder = folder_with_vectors();
    let environment = [("GPUFLEET_AMQP_URL", url.as_str())];
    let id = "0190a5b8-7c00-7000-8000-000000000009";
    for (arguments, missing) in [
        (submit(&[]), "exchange gpufleet.v1.replies does not exist"),
        (vec!["cancel", id], "exchange gpufleet.v1.control.operator does not exist"),
        (vec!["workers", "drain", "w"], "exchange gpufleet.v1.control.operator does not exist"),
        (vec!["dead", "list"], "queue gpufleet.v1.dead does not exist"),
    ] {
        let ended = gpufleet_command(folder.path(), &environment, &arguments).await;
        assert_eq!(ended.code, 7, "{ended:?}");
        assert!(ended.stderr.contains(missing) && ended.stderr.contains("gpufleet-worker run"), "{ended:?}");
    }
    ground.services().broker().delete_vhost(&vhost).await.unwrap();
}

/// This database has no tables. Tables of another release are reported in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn commands_and_the_recorder_have_one_exit_code_for_tables_that_do_not_fit() {
    const TABLES_DO_NOT_FIT: i32 = 11;
    let ground = Ground::shared("no-tables").await;
    let database = format!("{}-bare", ground.fleet().space());
    ground.services().postgres().create_database(&database).await.unwrap();
    let url = ground.services().postgres().tcp_url(&database);
    let environment = [("GPUFLEET_DATABASE_URL", url.as_str())];
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["history"][..], &["show", "0190a5b8"], &["logs", "0190a5b8"], &["workers"]] {
        let ended = gpufleet_command(folder.path(), &environment, arguments).await;
        assert_eq!(ended.code, TABLES_DO_NOT_FIT, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains("create them with `gpufleet-ledger migrate`"), "{ended:?}");
    }
    let mut recorder = Command::new(programs::ours(None, "gpufleet-ledger").unwrap());
    recorder.args(["record", "--database-url", &url, "--amqp-url", &ground.endpoints().amqp_url]).kill_on_drop(true);
    let recorder = tokio::time::timeout(WAIT, recorder.output()).await.expect("the recorder ends").unwrap();
    assert_eq!(recorder.status.code(), Some(TABLES_DO_NOT_FIT), "{recorder:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn short_commands_and_detached_jobs_leave_no_reply_queue_behind() {
    let (ground, worker) = Ground::with_worker("no-traces").await;
    // `workers drain` takes only names that the ledger knows.
    ground.poll_worker("known", worker.name(), |_| true).await;
    let folder = folder_with_vectors();
    let id = "0190a5b8-7c00-7000-8000-000000000009";
    let detached = vec!["submit", "saxpy", "--arg=a=2", "--zeros=x=f32[4]", "--zeros=y=f32[4]", "--detach"];
    let commands =
        [vec!["cancel", id], vec!["dead", "list"], detached, submit(&[]), vec!["workers", "drain", worker.name()]];
    for arguments in &commands {
        let ended = ground.gpufleet(folder.path(), arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ground.poll_no_reply_queue().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_distinguishes_an_absent_broker_from_a_wrong_password() {
    let ground = Ground::shared("refused").await;
    let folder = folder_with_vectors();
    let absent = [("GPUFLEET_AMQP_URL", "amqp://guest:guest@127.0.0.1:1/x")];
    let ended = gpufleet_command(folder.path(), &absent, &submit(&[])).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    assert!(ended.stderr.contains("127.0.0.1:1"), "{ended:?}");

    let url = ground.node_url();
    let (login, place) = url.split_once('@').unwrap();
    let wrong = format!("{}:wrong-password@{place}", login.rsplit_once(':').unwrap().0);
    let ended = gpufleet_command(folder.path(), &[("GPUFLEET_AMQP_URL", &wrong)], &submit(&[])).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    assert!(ended.stderr.contains("wrong user or password"), "{ended:?}");
    assert!(!ended.stderr.contains("wrong-password"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compile_error_shows_the_line_of_the_users_file() {
    let (ground, _worker) = Ground::with_worker("compile-error").await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("k.cu"), "extern \"C\" __global__ void k(float* y) {\n    y[0] = undeclared;\n}\n")
        .unwrap();
    let arguments = [
        "submit", "--source", "k.cu", "--entry", "k", "--zeros", "y=f32[4]", "--args", "y", "--grid", "1", "--block",
        "1",
    ];
    complains(&ground, folder.path(), &arguments, 4, &["undeclared", "k.cu:2", "y[0] = undeclared"]).await;
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_carries_its_user_unless_an_option_turns_it_off() {
    let ground = Ground::shared("no-user").await;
    let folder = folder_with_vectors();
    let user = ground.broker().await.urls().user().to_owned();
    let recorded = async |more: &[&str]| {
        let job = ground.gpufleet(folder.path(), &submit(more)).await.json();
        ground.final_job(job["job_id"].as_str().unwrap().parse().unwrap()).await.job.user_id
    };
    let worker = ground.worker().await;
    assert_eq!(recorded(&["-o", "json"]).await, Some(user));
    assert_eq!(recorded(&["-o", "json", "--no-user-id"]).await, None);
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    let _worker = ground.worker_with(&["--no-user-id"]).await;
    assert_eq!(recorded(&["-o", "json"]).await, None, "the worker ignores users");
    ground.check_history(3).await;
}
