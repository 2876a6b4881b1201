//! Host programs in containers: `gpufleet run --on-worker --image` runs a command in an image that the worker offers. It ends as a program in
//! an environment does, and nothing of its container is left. Only a worker that is root runs containers.

use std::{fs, path::Path};

use gpufleet_local::{ImageStore, Signal, images::BUSYBOX, state::is_root};
use gpufleet_tests::{Ended, Ground, TestWorker, gpufleet_command, poll_until};
use tempfile::TempDir;

/// The settings of a pool with containers.
const POOL: &str = "gpu:programs=1,program-isolation=podman,program-memory=64MiB,program-pids=64";

/// A fleet whose worker offers an image.
struct Scene {
    ground: Ground,
    worker: TestWorker,
    podman: String,
    here: TempDir,
}

impl Scene {
    /// Starts a fleet, or nothing if this user can't run containers.
    async fn start(label: &str) -> Option<Self> {
        if !is_root() {
            eprintln!("only root runs containers");
            return None;
        }
        let store = ImageStore::open(Path::new(env!("CARGO_TARGET_TMPDIR")).join("images")).unwrap();
        store.busybox().unwrap();
        let (ground, podman, here) = (Ground::shared(label).await, store.podman(), tempfile::tempdir().unwrap());
        let worker = ground.worker_with(&arguments(&podman, here.path())).await;
        Some(Self { ground, worker, podman, here })
    }

    async fn run(&self, options: &[&str], command: &[&str]) -> Ended {
        let words = [&["run", "--on-worker", "--pool", "gpu", "--quiet"], options, &["--"], command].concat();
        gpufleet_command(self.here.path(), &[("GPUFLEET_AMQP_URL", &self.ground.node_url())], &words).await
    }

    async fn sh(&self, options: &[&str], script: &str) -> Ended {
        self.run(&[&["--image", BUSYBOX], options].concat(), &["sh", "-c", script]).await
    }

    /// Returns what the worker has of programs: their folders.
    fn folders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.here.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("gpufleet-program-")).collect()
    }
}

/// A worker whose programs have their folders here, so that a test finds them.
fn arguments<'a>(podman: &'a str, folder: &'a Path) -> Vec<&'a str> {
    let folder = folder.to_str().unwrap();
    vec!["--pool", POOL, "--image", BUSYBOX, "--podman", podman, "--program-folder", folder]
}

/// Returns the number of processes that sleep for this many seconds.
fn sleeping(seconds: u32) -> usize {
    let line = format!("sleep\0{seconds}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes())).count()
}

/// A program that ignores SIGTERM, and is found by the time for which it sleeps.
fn stubborn(seconds: u32) -> String {
    format!("trap '' TERM; echo ready; sleep {seconds} & sleep {seconds}")
}

/// Returns the cgroups of programs with these names.
fn cgroups(names: &[String]) -> Vec<String> {
    let roots = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
    let roots = roots.chain(["/sys/fs/cgroup".into()]);
    let groups = roots.flat_map(|root| names.iter().map(move |name| root.join(name)));
    groups.filter(|group| group.exists()).map(|group| group.display().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_an_image_and_ends_as_it_does() {
    let Some(scene) = Scene::start("container-exit").await else { return };
    let options = ["--variable", "SEED=7", "--upload", "in", "--download", "out/**"];
    fs::write(scene.here.path().join("in"), "input\n").unwrap();
    let ended = scene.sh(&options, "echo $SEED; cat in >&2; mkdir out; echo kept > out/x; exit 3").await;
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (3, "7\ninput\n", ""), "{ended:?}");
    assert_eq!(fs::read_to_string(scene.here.path().join("out/x")).unwrap(), "kept\n");
    assert_eq!(scene.folders(), Vec::<String>::new());
    let missing = scene.run(&["--image", BUSYBOX], &["no-such-command"]).await;
    assert!(missing.code == 4 && missing.stderr.contains("command not found in the image"), "{missing:?}");
    let limited = scene.sh(&["--time-limit", "1s"], &stubborn(1_234_567)).await;
    assert_eq!((limited.code, limited.stdout.as_str()), (5, "ready\n"), "{limited:?}");
    assert_eq!(sleeping(1_234_567), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_with_containers_does_not_offer_is_refused_with_the_reason() {
    let Some(scene) = Scene::start("container-refused").await else { return };
    let unknown = scene.run(&["--image", "torch:2"], &["true"]).await;
    assert!(
        unknown.code == 4 && unknown.stderr.contains("has no image \"torch:2\"; it has localhost/busybox:2"),
        "{unknown:?}"
    );
    let environment = scene.run(&["--env", "torch"], &["true"]).await;
    assert!(environment.code == 4, "{environment:?}");
    assert!(environment.stderr.contains("runs no programs with --env; use --image"), "{environment:?}");
    assert!(environment.stderr.contains("program-isolation=environment"), "{environment:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_needs_too_much_memory_says_so() {
    let Some(scene) = Scene::start("container-memory").await else { return };
    let ended = scene.run(&["--image", BUSYBOX], &["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]).await;
    assert_eq!(ended.code, 128 + 9, "{ended:?}");
    let jobs = || scene.ground.jobs(gpufleet_ledger::HistoryFilter::default());
    poll_until("the program is in the ledger", async || jobs().await.is_ok_and(|jobs| jobs.len() == 1)).await;
    let job = scene.ground.final_job(jobs().await.unwrap()[0].job_id).await;
    let message = &job.job.failure.as_ref().unwrap().message;
    assert!(message.contains("more memory than program-memory=64") && message.contains("of pool gpu"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_an_environment_has_the_same_limits() {
    if !is_root() {
        eprintln!("only root can be sure to make cgroups");
        return;
    }
    let (ground, here) = (Ground::shared("environment-limits").await, tempfile::tempdir().unwrap());
    let pool = "gpu:programs=1,program-memory=64MiB,program-pids=32";
    let _worker = ground.worker_with(&["--pool", pool, "--environment", "plain=/usr"]).await;
    let url = ground.node_url();
    let run = async |command: &[&str]| {
        let words = [&["run", "--on-worker", "--pool", "gpu", "--env", "plain", "--"], command].concat();
        gpufleet_command(here.path(), &[("GPUFLEET_AMQP_URL", &url)], &words).await
    };
    let memory = run(&["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]).await;
    assert_eq!(memory.code, 128 + 9, "{memory:?}");
    let jobs = || ground.jobs(gpufleet_ledger::HistoryFilter::default());
    poll_until("the program is in the ledger", async || jobs().await.is_ok_and(|jobs| jobs.len() == 1)).await;
    let job = ground.final_job(jobs().await.unwrap()[0].job_id).await;
    let message = &job.job.failure.as_ref().unwrap().message;
    assert!(message.contains("more memory than program-memory=64"), "{message}");
    let bomb = "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; echo survived";
    let forks = run(&["sh", "-c", bomb]).await;
    assert!(forks.code != 0 && forks.stdout.contains("Cannot fork") && !forks.stdout.contains("survived"), "{forks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_leaves_no_container() {
    let Some(scene) = Scene::start("container-killed").await else { return };
    let seconds = 7_654_321;
    let detached = scene.sh(&["--detach"], &stubborn(seconds)).await;
    assert_eq!(detached.code, 0, "{detached:?}");
    poll_until("the program runs", async || sleeping(seconds) == 2).await;
    let folders = scene.folders();
    assert_eq!(folders.len(), 1);
    assert!(!cgroups(&folders).is_empty());
    scene.worker.stop(Signal::Kill).await;
    poll_until("the program is gone", async || sleeping(seconds) == 0).await;
    // The next worker removes what the killed one could not.
    let _next = scene.ground.worker_with(&arguments(&scene.podman, scene.here.path())).await;
    assert_eq!(scene.folders(), Vec::<String>::new());
    assert_eq!(cgroups(&folders), Vec::<String>::new());
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(&folders[0]), "{mounts}");
}
