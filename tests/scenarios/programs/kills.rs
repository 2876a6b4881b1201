//! Whatever ends a host program, or fails under it: the command has its exit code, the ledger has one outcome with the reason, and nothing
//! is left running, mounted or on disk.

use std::{ffi::CString, path::PathBuf};

use gpufleet::schema::AttemptState;
use gpufleet_tests::{METRICS, memory_bytes, poll_within, write_queue_names};

use super::*;

/// A program that a signal does not end, and whose child has left it.
const STUBBORN: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & echo begun; wait; sleep 1000";
/// The time that a program has after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// The largest log that is kept.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// What the ledger keeps of the end of an output.
const TAIL_BYTES: u64 = 64 << 10;
/// What a worker's memory may grow by, whatever a program writes.
const GROWTH_BYTES_MAX: u64 = 128 << 20;
/// In this time a gigabyte of output has passed a worker that is not optimised, on a busy machine.
const GIBIBYTE_WITHIN: Duration = Duration::from_secs(400);

/// A scene whose programs have a mark in their environment variables, and their folders in one of its own.
struct Marked {
    scene: Scene,
    programs: TempDir,
    mark: String,
}

impl Marked {
    async fn start(label: &str) -> Self {
        Self::on(Ground::shared(label).await, &[]).await
    }

    async fn on(ground: Ground, more: &[&str]) -> Self {
        let (environment, programs) = (environment(), tempfile::tempdir().unwrap());
        let mark = format!("MARK={}", JobId::new());
        let words = worker_words(&programs, &plain(&environment));
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let worker = ground.worker_with(&words).await;
        Self { scene: Scene { ground, worker, environment }, programs, mark }
    }

    /// Starts another worker with the same folder.
    async fn another_worker(&self) -> TestWorker {
        let words = worker_words(&self.programs, &plain(&self.scene.environment));
        self.scene.ground.worker_with(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Starts a program and waits until it says that it has begun.
    async fn begun(&self, here: &Path, options: &[&str], script: &str) -> Run {
        let marked = [&["--variable", self.mark.as_str()], options].concat();
        let mut run = self.scene.start_run(here, &marked, script);
        assert_eq!(run.line().await.as_deref(), Some("begun"));
        assert!(!self.processes().is_empty(), "a program that runs has the mark");
        run
    }

    /// Returns the processes of programs.
    fn processes(&self) -> Vec<PathBuf> {
        let has_mark = |process: &PathBuf| contains(&process.join("environ"), &self.mark);
        processes().filter(has_mark).collect()
    }

    /// Returns the guard of the only program.
    fn guard(&self) -> u32 {
        let is_guard = |pid: &u32| gpufleet_tests::command_line(*pid).starts_with("gpufleet-worker program");
        let guards: Vec<u32> = gpufleet_tests::children(self.scene.worker.pid()).into_iter().filter(is_guard).collect();
        let [guard] = guards[..] else { panic!("one program runs, and {guards:?} are guards") };
        guard
    }

    /// Asserts that soon nothing is left of any program: no process, no mount in any namespace, no folder.
    async fn assert_nothing_left(&self) {
        poll_until("no process of a program is left", async || self.processes().is_empty()).await;
        let folders = self.programs.path().join("gpufleet-program-");
        let folders = folders.to_str().unwrap();
        let mounts = || processes().filter(|process| contains(&process.join("mountinfo"), folders)).count();
        poll_until("no folder of a program is mounted", async || mounts() == 0).await;
        let left = || fs::read_dir(self.programs.path()).unwrap().count();
        poll_until("no folder of a program is left", async || left() == 0).await;
    }

    /// Returns the only program of the ledger once it has ended, with its state, code and message.
    async fn outcome(&self) -> (JobDetail, JobState, String, String) {
        let detail = self.scene.only_program().await;
        let failure = detail.job.failure.clone();
        let (code, message) = failure.map_or_else(Default::default, |failure| (failure.code, failure.message));
        (detail.clone(), detail.job.state, code, message)
    }
}

fn worker_words(programs: &TempDir, environment: &str) -> [String; 6] {
    let folder = programs.path().to_str().unwrap().to_owned();
    let words = ["--pool", "gpu:programs=1", "--environment", environment, "--program-folder"].map(str::to_owned);
    let [pool, of_pool, option, environment, folder_option] = words;
    [pool, of_pool, option, environment, folder_option, folder]
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter(move |entry| entry.file_name().to_str().is_some_and(is_process)).map(|entry| entry.path())
}

/// Returns whether a file of a process has this text. That of a process that has ended has none.
fn contains(file: &Path, text: &str) -> bool {
    fs::read(file).is_ok_and(|content| content.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_worker_dies_is_lost_and_nothing_runs_again() {
    let marked = Marked::start("program-lost").await;
    let here = folder();
    let run = marked.begun(here.path(), &[], "echo begun; sleep 600").await;
    marked.scene.worker.stop(Signal::Kill).await;
    poll_until("the program ends with its worker", async || marked.processes().is_empty()).await;
    let _other = marked.another_worker().await;
    marked.assert_nothing_left().await;
    let ended = run.ended_within(LOST_WITHIN).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (10, ""), "{ended:?}");
    assert!(ended.stderr.contains("the worker on which the program ran is gone"), "{ended:?}");
    assert!(ended.stderr.contains("--attempts"), "{ended:?}");
    let (detail, state, code, message) = marked.outcome().await;
    assert_eq!((state, code.as_str()), (JobState::Failed, "executor_lost"), "{message}");
    assert!(message.contains("the program may run once and is not started again"), "{message}");
    let [first, second] = detail.attempts.as_slice() else { panic!("{detail:?}") };
    assert_eq!((first.state, second.state, second.started_at), (AttemptState::Running, AttemptState::Failed, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_guard_dies_is_lost_and_the_next_one_runs() {
    let marked = Marked::start("program-guard").await;
    let here = folder();
    let run = marked.begun(here.path(), &[], STUBBORN).await;
    signal(marked.guard(), libc::SIGKILL);
    let ended = run.ended().await;
    assert_eq!(ended.code, 10, "{ended:?}");
    assert!(ended.stderr.contains("the process that ran the program ended: "), "{ended:?}");
    let (_, state, code, message) = marked.outcome().await;
    assert_eq!((state, code.as_str()), (JobState::Failed, "executor_lost"), "{message}");
    assert!(message.contains("signal: 9"), "{message}");
    marked.assert_nothing_left().await;
    assert_eq!(marked.scene.run(here.path(), &["--quiet"], "exit 3").await.code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_outlives_a_restart_of_the_broker_and_runs_once() {
    let marked = Marked::on(Ground::breakable("program-broker").await, &METRICS).await;
    let here = folder();
    let script = "echo begun; until test -e \"$VIRTUAL_ENV/go\"; do sleep 0.1; done; echo done; exit 6";
    let run = marked.begun(here.path(), &["--quiet"], script).await;
    poll_until("the program is in the ledger", async || marked.scene.programs().await.len() == 1).await;
    let broker = marked.scene.ground.services().broker();
    write_queue_names(broker).await;
    broker.kill9().await.unwrap();
    assert!(!marked.processes().is_empty(), "the program goes on without the broker");
    broker.restart().await.unwrap();
    let held = [("pool", "gpu")];
    let worker = &marked.scene.worker;
    worker.poll_metric("the message was delivered once more", "gpufleet_messages_held", &held, 2.0).await;
    fs::write(marked.scene.environment.path().join("go"), "").unwrap();
    let ended = run.ended_within(LOST_WITHIN).await;
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (6, "done\n", ""), "{ended:?}");
    let (detail, state, _, message) = marked.outcome().await;
    assert_eq!((state, message.as_str()), (JobState::Failed, "the program exited with 6"));
    let output = detail.attempts.last().and_then(|attempt| attempt.printf_output.as_ref());
    assert_eq!(output.map(|output| output.text.as_str()), Some("begun\ndone\n"), "it ran once");
    marked.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_signals_is_gone_after_a_cancellation_and_at_its_time_limit() {
    let marked = Marked::start("program-stubborn").await;
    let here = folder();
    let run = marked.begun(here.path(), &["--quiet"], STUBBORN).await;
    poll_until("the program is in the ledger", async || marked.scene.programs().await.len() == 1).await;
    let job = marked.scene.programs().await[0];
    let since = Instant::now();
    marked.scene.gpufleet(here.path(), &["cancel", &job.to_string()]).await.ok();
    let ended = run.ended().await;
    assert!(ended.code == 5 && since.elapsed() >= GRACE, "{:?}: {ended:?}", since.elapsed());
    let (_, state, code, message) = marked.outcome().await;
    assert_eq!((state, code.as_str()), (JobState::Cancelled, "cancelled"), "{message}");
    marked.assert_nothing_left().await;

    let run = marked.begun(here.path(), &["--quiet", "--time-limit", "1s"], STUBBORN).await;
    let ended = run.ended().await;
    assert!(ended.code == 5 && ended.stderr.contains("the program reached its time limit of 1s"), "{ended:?}");
    poll_until("both are in the ledger", async || marked.scene.programs().await.len() == 2).await;
    let timed = marked.scene.ground.final_job(marked.scene.programs().await[0]).await.job;
    let failure = timed.failure.unwrap();
    assert_eq!((timed.state, failure.code.as_str()), (JobState::Failed, "time_limit"), "{failure:?}");
    marked.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_there_is_named_and_leaves_nothing() {
    let marked = Marked::start("program-missing").await;
    let here = folder();
    let url = marked.scene.ground.node_url();
    let words = ["run", "--on-worker", "--pool", "gpu", "--env", "plain", "--", "no-such-command", "--flag"];
    let ended = gpufleet_tests::gpufleet_command(here.path(), &[("GPUFLEET_AMQP_URL", url.as_str())], &words).await;
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.stderr.contains("correct what the message names"), "{ended:?}");
    assert!(!ended.stderr.contains("read the program's own output"), "it has none: {ended:?}");
    let (detail, state, code, message) = marked.outcome().await;
    assert_eq!((state, code.as_str()), (JobState::Failed, "program_failed"), "{message}");
    assert!(message.contains("no-such-command") && ended.stderr.contains(&message), "{message}");
    assert_eq!(detail.attempts.last().and_then(|attempt| attempt.session.clone()), None, "it has no exit code");
    assert_eq!(detail.job.host_program.unwrap().command, ["no-such-command", "--flag"]);
    marked.assert_nothing_left().await;
}

/// A small disk at a folder, until it is dropped. Only root can mount one.
struct SmallDisk(CString);

impl SmallDisk {
    fn at(folder: &Path) -> Self {
        let path = CString::new(folder.to_str().unwrap()).unwrap();
        let (kind, size) = (c"tmpfs", c"size=256m,mode=0755");
        // SAFETY: all texts end with NUL and outlive the call.
        let mounted = unsafe { libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), 0, size.as_ptr().cast()) };
        assert_eq!(mounted, 0, "{}: this test needs root", std::io::Error::last_os_error());
        Self(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // SAFETY: the path ends with NUL and outlives the call.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_the_program_that_filled_it_and_not_the_next_one() {
    let marked = Marked::start("program-disk").await;
    let here = folder();
    let _disk = SmallDisk::at(marked.programs.path());
    let fill = "cat /dev/zero > big || { echo full; exit 9; }";
    let ended = marked.scene.run(here.path(), &["--quiet"], fill).await;
    assert!(ended.code == 9 && ended.stdout.ends_with("full\n"), "{ended:?}");
    assert!(ended.stdout.contains("No space left on device"), "{ended:?}");
    let (_, state, _, message) = marked.outcome().await;
    assert_eq!((state, message.as_str()), (JobState::Failed, "the program exited with 9"));
    marked.assert_nothing_left().await;

    // The files fit, and their archive does not fit beside them.
    let half = "head -c 150000000 /dev/zero > big; echo written";
    let ended = marked.scene.run(here.path(), &["--download", "big"], half).await;
    assert!(ended.code == 4 && ended.stdout == "written\n", "{ended:?}");
    assert!(ended.stderr.contains("No space left on device") && ended.stderr.contains("free space"), "{ended:?}");
    poll_until("both are in the ledger", async || marked.scene.programs().await.len() == 2).await;
    let packed = marked.scene.ground.final_job(marked.scene.programs().await[0]).await.job;
    let failure = packed.failure.unwrap();
    assert!(packed.state == JobState::Failed && failure.message.contains("No space left on device"), "{failure:?}");
    marked.assert_nothing_left().await;
    assert_eq!(marked.scene.run(here.path(), &["--quiet"], "echo small > file && exit 2").await.code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_of_output_takes_little_memory_and_what_exceeds_the_log_is_counted() {
    let store = folder();
    let blobs = store.path().to_str().unwrap();
    let marked = Marked::on(Ground::shared("program-gibibyte").await, &["--blobs", blobs]).await;
    let here = folder();
    let worker = marked.scene.worker.pid();
    let before = memory_bytes(worker, "VmRSS").unwrap();
    let bytes = LOG_BYTES_MAX + 3 * TAIL_BYTES;
    let script = format!("yes 0123456789abcde | head -c {bytes}; exit 8");
    let options = ["--quiet", "--detach", "--blobs", blobs];
    let ended = marked.scene.run(here.path(), &options, &script).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let job: JobId = ended.stdout.trim().parse().unwrap();
    let is_final = async || marked.scene.ground.look(job).await.is_some_and(|detail| detail.job.state.is_final());
    poll_within(GIBIBYTE_WITHIN, "all of the output has passed the worker", is_final).await;
    let peak = memory_bytes(worker, "VmHWM").unwrap();
    assert!(peak - before < GROWTH_BYTES_MAX, "the worker grew from {before} to {peak} bytes");
    let detail = marked.scene.ground.final_job(job).await;
    let failure = detail.job.failure.as_ref().unwrap();
    assert_eq!(failure.message, "the program exited with 8");
    let log = detail.outputs.iter().find(|output| output.name == "log").expect("the log is kept");
    assert_eq!(log.shape, [LOG_BYTES_MAX]);
    let printed = detail.attempts.last().and_then(|attempt| attempt.printf_output.clone()).unwrap();
    assert_eq!((printed.dropped_bytes, printed.text.len() as u64), (bytes - TAIL_BYTES, TAIL_BYTES));
    let dropped = format!("log_dropped_bytes={}", 3 * TAIL_BYTES);
    assert_eq!(marked.scene.worker.count_in_log(&dropped), 1);
    marked.assert_nothing_left().await;
}
