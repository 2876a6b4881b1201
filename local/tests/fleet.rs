//! Fleets of real services with substitutes for gpufleet's programs: started processes are stopped, and dead ones are
//! reported.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use gpufleet_local::{
    BlobEndpoint, Cuda, FleetState, LocalError, LocalFleet, Process, Services, Signal, Silent, UpOptions, differences,
    down, persistent::up_from, process::marked, running, state::MARKER, status,
};

use self::poll::poll_until;

mod poll;

/// The time within which a process reacts to an event.
const WITHIN: Duration = Duration::from_secs(10);
/// Time limit for a start: longer than the services' own limits.
const START_WITHIN: Duration = Duration::from_secs(120);

/// Behaves like a worker or recorder for the fleet: it creates the ready file and exits at SIGTERM. Its child
/// substitutes an executor.
const SUBSTITUTE: &str = r#"#!/bin/sh
echo "$@"
echo "blobs: $GPUFLEET_BLOBS"
[ "$1" = migrate ] && exit "${FAIL_MIGRATION:-0}"
while [ $# -gt 1 ]; do [ "$1" = --ready-file ] && ready=$2; shift; done
sleep 1000 & child=$!
trap 'kill "$child"; exit 0' TERM
: > "$ready"
wait "$child"
"#;

fn substitutes(directory: &Path, script: &str) -> PathBuf {
    let bin = directory.join("bin");
    fs::create_dir(&bin).expect("the test owns the scratch directory");
    for name in ["gpufleet-worker", "gpufleet-ledger"] {
        fs::write(bin.join(name), script).expect("the directory was just created");
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("the test owns the file");
    }
    bin
}

/// A substitute that becomes ready slowly, so that a start can be interrupted before.
fn slow_substitute() -> String {
    SUBSTITUTE.replace(": > \"$ready\"", "sleep 0.5; : > \"$ready\"")
}

/// Kills the processes of a persistent fleet when it is dropped, so that none is left after a failed assertion.
struct KillOnDrop(PathBuf);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        for identity in marked(MARKER, &self.0.to_string_lossy()) {
            identity.signal(Signal::Kill);
        }
    }
}

fn processes_of(state: &Path) -> usize {
    marked(MARKER, &state.to_string_lossy()).len()
}

/// The blob store in the arguments of a substitute.
fn blobs_of(process: &Process) -> String {
    let words = fs::read_to_string(process.log()).expect("the substitute has a log");
    words
        .lines()
        .find_map(|line| line.strip_prefix("blobs: "))
        .expect("the substitute prints its blob store")
        .to_owned()
}

/// Waits until no process is left. The child of a substitute ends a moment later than the substitute.
async fn none_is_left_of(state: &Path) {
    poll_until("the end of the last process", WITHIN, async || processes_of(state) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fleets_share_services_and_stop_apart() {
    let scratch = tempfile::tempdir().unwrap();
    let bin = substitutes(scratch.path(), SUBSTITUTE);
    let services = Services::ephemeral_with_logs(&scratch.path().join("log")).await.unwrap();
    let path = services.state().path().to_owned();
    let builder = LocalFleet::builder().on(&services).bin_dir(&bin);
    let with_store = builder.clone().pools(["a", "b"]).blobs(scratch.path());
    let (one, two) = tokio::try_join!(builder.clone().workers(2).start(), with_store.start()).unwrap();
    assert_ne!(one.endpoints(), two.endpoints());
    assert_eq!((one.workers().len(), two.workers().len()), (2, 1));

    let worker = one.worker(0);
    worker.kill9().await.unwrap();
    assert!(!worker.is_alive() && one.worker(1).is_alive());
    worker.restart().await.unwrap();
    assert!(worker.is_alive());
    one.add_worker().await.unwrap();
    one.stop_ledger().await.unwrap();
    one.start_ledger().await.unwrap();
    assert_eq!(one.stop().await.unwrap(), Vec::<String>::new());
    assert!(two.worker(0).is_alive() && two.ledger().unwrap().is_alive());
    let words = fs::read_to_string(two.worker(0).process().log()).unwrap();
    assert!(words.contains("--cuda emulated --pool a --pool b"), "{words}");
    assert_eq!(blobs_of(&two.worker(0).process()), scratch.path().to_str().unwrap());
    assert_eq!(two.endpoints().blobs, Some(BlobEndpoint::Folder(scratch.path().to_owned())));
    assert_eq!((blobs_of(&one.worker(0).process()).as_str(), &one.endpoints().blobs), ("", &None));

    // The guard kills the child whose parent was killed.
    services.stop().await.unwrap();
    none_is_left_of(&path).await;
    assert!(!path.exists() && scratch.path().join("log/broker.log").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_says_why_and_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let bin = substitutes(scratch.path(), "#!/bin/sh\n[ $1 = migrate ] && exit 0\necho no such device >&2\nexit 10\n");
    let services = Services::ephemeral().await.unwrap();
    let path = services.state().path().to_owned();
    let error = LocalFleet::builder().on(&services).bin_dir(&bin).start().await.unwrap_err();
    assert!(matches!(error, LocalError::Ended { .. }));
    let text = error.to_string();
    assert!(text.contains("exit status: 10") && text.contains("no such device"), "{text}");
    let missing = LocalFleet::builder().on(&services).bin_dir(scratch.path()).start().await.unwrap_err().to_string();
    assert!(missing.contains("gpufleet-worker") && missing.contains("cargo build"), "{missing}");
    services.stop().await.unwrap();
    none_is_left_of(&path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persistent_fleet_is_found_repaired_and_stopped() {
    let scratch = tempfile::tempdir().unwrap();
    // If root runs the test, Postgres runs as another user, which must be able to enter the folder.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let bin_dir = substitutes(scratch.path(), SUBSTITUTE);
    let start = async |options: &UpOptions| up_from(Some(&bin_dir), options, &Silent).await;
    let dir = fs::canonicalize(scratch.path()).unwrap().join("fleet");
    let _kill_on_drop = KillOnDrop(dir.clone());
    assert_eq!(status(&dir).unwrap().state, FleetState::Down);
    assert!(!dir.exists(), "`status` creates no directory");

    let options = UpOptions { workers: Some(2), cuda: Some(Cuda::Emulated), ..UpOptions::in_dir(&dir) };
    // Two starts at once are serialized, and the second finds all processes running.
    let (first, second) = tokio::try_join!(start(&options), start(&options)).unwrap();
    let pids = |status: &gpufleet_local::Status| status.processes.iter().map(|process| process.pid).collect::<Vec<_>>();
    assert_eq!((pids(&first), first.state), (pids(&second), FleetState::Up));
    assert_eq!(first.processes.len(), 6, "broker, epmd, Postgres, ledger, two workers");
    assert_eq!(running(&dir), first.endpoints);
    let blobs = dir.join("blobs");
    assert_eq!(first.endpoints.as_ref().unwrap().blobs, Some(BlobEndpoint::Folder(blobs.clone())));
    assert_eq!(fs::metadata(&blobs).unwrap().permissions().mode() & 0o777, 0o700);
    let log = fs::read_to_string(dir.join("log/gpufleet-w1.log")).unwrap();
    assert!(log.contains(&format!("blobs: {}", blobs.display())), "{log}");

    assert_eq!(differences(&options).unwrap(), Vec::<String>::new());
    let other = UpOptions { workers: Some(1), pools: vec!["a".to_owned()], ..options.clone() };
    assert_eq!(pids(&start(&other).await.unwrap()), pids(&first), "running processes do not change");
    let otherwise = "runs with --pool default, not with --pool a";
    let told = [
        "2 workers are running, not 1".to_owned(),
        format!("gpufleet-w1 {otherwise}"),
        format!("gpufleet-w2 {otherwise}"),
    ];
    assert_eq!(differences(&other).unwrap(), told);

    let worker = first.processes.iter().find(|process| process.name == "gpufleet-w2").unwrap();
    std::process::Command::new("kill").args(["-9", &worker.pid.to_string()]).status().unwrap();
    poll_until("the worker's death", WITHIN, async || status(&dir).unwrap().state == FleetState::Degraded).await;
    assert!(status(&dir).unwrap().processes.iter().any(|process| process.name == "gpufleet-w2" && !process.alive));
    assert!(running(&dir).is_some(), "the services still run");
    // A repair restores the number of workers.
    let repaired = start(&UpOptions { workers: None, ..options.clone() }).await.unwrap();
    assert_eq!((repaired.state, repaired.processes.len()), (FleetState::Up, 6));

    // As if a version without blob stores had started the workers: then the endpoints name no blob store.
    let endpoints = dir.join("endpoints.json");
    let with_store = fs::read_to_string(&endpoints).unwrap();
    let (without, _) = with_store.split_once(",\"blobs\"").unwrap();
    fs::write(&endpoints, format!("{without}}}")).unwrap();
    let unchanged = start(&options).await.unwrap();
    assert_eq!((unchanged.state, unchanged.endpoints.unwrap().blobs), (FleetState::Up, None));
    assert_eq!(differences(&options).unwrap(), ["the workers have no blob store"]);

    assert_eq!(down(&dir, &Silent).await.unwrap(), Vec::<String>::new());
    assert_eq!((status(&dir).unwrap().state, running(&dir)), (FleetState::Down, None));
    none_is_left_of(&dir).await;
    assert_eq!(down(&dir, &Silent).await.unwrap(), Vec::<String>::new());

    // The data is still there, at the same addresses.
    let again = start(&options).await.unwrap();
    assert_eq!(again.endpoints, first.endpoints);
    down(&dir, &Silent).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_start_is_completed_by_the_next() {
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let bin_dir = substitutes(scratch.path(), &slow_substitute());
    let dir = fs::canonicalize(scratch.path()).unwrap().join("fleet");
    let _kill_on_drop = KillOnDrop(dir.clone());
    let options = UpOptions { cuda: Some(Cuda::Emulated), ..UpOptions::in_dir(&dir) };
    let start = || up_from(Some(&bin_dir), &options, &Silent);

    // Each start is interrupted when one more process runs and is not ready yet.
    let mut before = Vec::new();
    for name in ["postgres", "gpufleet-ledger", "gpufleet-w1"] {
        let record = dir.join("processes").join(name);
        let is_recorded = async || fs::read_to_string(&record).is_ok_and(|text| !text.is_empty());
        tokio::select! {
            () = poll_until(name, START_WITHIN, is_recorded) => {}
            done = start() => panic!("it was not interrupted at {name}: {done:?}"),
        }
        before.push((name, fs::read_to_string(&record).unwrap()));
    }
    let status = start().await.unwrap();
    assert_eq!(status.state, FleetState::Up, "{status:?}");
    for (name, record) in before {
        assert_eq!(fs::read_to_string(dir.join("processes").join(name)).unwrap(), record, "{name} is still the same");
    }
    for name in ["gpufleet-ledger", "gpufleet-w1"] {
        assert!(dir.join(format!("{name}.ready")).exists(), "{name} is ready");
    }
    down(&dir, &Silent).await.unwrap();
    none_is_left_of(&dir).await;
}
