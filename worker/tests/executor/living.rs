//! Tests of the start and end of executors, and that their end affects nothing else.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use gpufleet_worker::executor::{CudaSpec, Executor, ExecutorOptions, LostCause, RunError, StartError, spec};

use crate::harness::{
    add_one, executable, lose, misbehaving, options, poll_until, process_exists, start, succeed, u32s,
};

/// Time limit for an executor's answer: longer than one takes on a loaded machine.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_emulated_device_says_that_it_is_one() {
    let (executor, device) = Executor::start(options()).await.unwrap();
    assert!(device.emulated);
    assert_eq!(device.compute_capability, (8, 0));
    assert!(device.uuid.starts_with("GPU-") && device.uuid.len() == 40, "{}", device.uuid);
    assert!(device.driver_version >= 12_000 && device.multiprocessors > 0 && !device.name.is_empty());
    assert_eq!(*executor.device(), device);
}

#[tokio::test]
async fn a_device_that_is_not_there_is_an_error_with_the_number_that_are() {
    let refused = Executor::start(ExecutorOptions { device: 7, ..options() }).await.unwrap_err();
    assert!(matches!(refused, StartError::NoDevice { device: 7, devices: 1 }), "{refused}");
}

#[tokio::test]
async fn a_driver_that_is_not_there_is_an_error_with_a_hint() {
    let nowhere = CudaSpec::Path("/nowhere/libcuda.so".into());
    let refused = Executor::start(ExecutorOptions { cuda: nowhere, ..options() }).await.unwrap_err();
    let StartError::NoDriver { hint } = refused else { panic!("{refused}") };
    assert!(hint.contains("/nowhere/libcuda.so"), "{hint}");
}

#[tokio::test]
async fn a_library_that_is_no_driver_is_refused() {
    let libc = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"];
    let library = libc.into_iter().find(|path| std::path::Path::new(path).exists()).expect("some libm is there");
    let refused = Executor::start(ExecutorOptions { cuda: CudaSpec::Path(library.into()), ..options() }).await;
    assert!(matches!(refused, Err(StartError::NoDriver { .. })), "{refused:?}");
}

/// If the worker is root, its executors may not enter a folder that only root may enter.
#[tokio::test]
async fn the_emulator_is_found_also_where_only_the_worker_may_look() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    let own = spec::emulator_places(executable().parent().unwrap()).into_iter().find(|path| path.is_file());
    let library = folder.path().join(spec::EMULATOR_FILE);
    fs::copy(own.expect("the emulator is built beside the worker"), &library).unwrap();
    for cuda in [CudaSpec::Emulated, CudaSpec::Auto] {
        let mut options = ExecutorOptions { cuda, ..options() };
        options.environment.push((spec::EMULATOR_LIBRARY_VARIABLE.to_owned(), library.display().to_string()));
        let (executor, _) = Executor::start(options).await.unwrap();
        assert_eq!(u32s(&succeed(&executor, &add_one(64, 1)).await[0]), vec![1; 64]);
    }
}

#[tokio::test]
async fn a_child_that_can_not_start_is_an_error_with_its_last_words() {
    let options = ExecutorOptions { executable: Some("/bin/false".into()), ..options() };
    let died = Executor::start(options).await.unwrap_err();
    assert!(matches!(died, StartError::Died { .. }), "{died}");
}

#[tokio::test]
async fn a_child_that_says_nothing_is_given_up() {
    let options =
        ExecutorOptions { executable: Some("/bin/cat".into()), ready_deadline: Duration::from_secs(30), ..options() };
    // `cat executor …` prints that there is no such file and exits, so it also ends without sending a message.
    assert!(matches!(Executor::start(options).await.unwrap_err(), StartError::Died { .. }));
}

#[tokio::test]
async fn a_device_without_room_for_a_stream_has_no_memory_and_is_not_sick() {
    // The first stream copies pieces of arrays, the others run jobs.
    for stream in 1..=2 {
        let mut options = options();
        let fault = format!("stream:{stream}=out-of-memory");
        options.environment.push(("GPUFLEET_EMULATOR_FAULTS".to_owned(), fault));
        let refused = Executor::start(options).await.unwrap_err();
        assert!(refused.is_out_of_memory(), "stream {stream}: {refused}");
    }
}

#[tokio::test]
async fn a_killed_child_loses_its_jobs_and_says_so() {
    let executor = start().await;
    let task = misbehaving("spin");
    let pid = executor.pid();
    let killing = async {
        let busy = || std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 4);
        poll_until("the child has its streams", busy).await;
        // SAFETY: the process is our own child. It has not been reaped, because the executor is still held.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    };
    let (lost, ()) = tokio::join!(lose(&executor, &task), killing);
    let RunError::Lost { cause, reason, was_running } = lost else { panic!("not lost") };
    assert_eq!((cause, was_running), (LostCause::Died, true));
    assert!(reason.contains("signal: 9"), "{reason}");
    assert_eq!(executor.lost().await.cause, LostCause::Died);
}

/// Returns whether every thread of the process is stopped. The signal goes to one thread, which makes the others stop.
fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it is not yet reaped");
    let mut stats =
        threads.map(|thread| fs::read_to_string(thread.expect("one follows the other").path().join("stat")));
    stats.all(|stat| stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))))
}

fn signal(executor: &Executor, signal: libc::c_int) {
    // SAFETY: the process is our own child. It has not been reaped, because the executor is still held.
    unsafe { libc::kill(executor.pid() as i32, signal) };
}

#[tokio::test]
async fn who_hangs_does_not_answer_until_it_goes_on() {
    let executor = start().await;
    signal(&executor, libc::SIGSTOP);
    poll_until("every thread of it has stopped", || is_stopped(executor.pid())).await;
    assert!(!executor.answers(Duration::from_millis(200)).await);
    signal(&executor, libc::SIGCONT);
    assert!(executor.answers(ANSWER_DEADLINE).await);
}

/// The runtime has one thread, and nothing else runs on it between the signal and the request.
#[tokio::test]
async fn an_executor_that_just_died_does_not_answer_before_its_loss_is_known() {
    let executor = start().await;
    assert!(executor.answers(ANSWER_DEADLINE).await);
    signal(&executor, libc::SIGKILL);
    assert!(!executor.answers(ANSWER_DEADLINE).await);
    assert_eq!(executor.lost().await.cause, LostCause::Died, "the supervisor did not end it");
    assert!(!executor.answers(ANSWER_DEADLINE).await);
}

#[tokio::test]
async fn a_stopped_executor_finishes_what_runs_and_takes_no_more() {
    let executor = start().await;
    let pid = executor.pid();
    let task = add_one(100_000, 20);
    let (outputs, ()) = tokio::join!(biased(&executor, &task), executor.stop(Duration::from_secs(60)));
    assert_eq!(u32s(&outputs[0]), [20; 100_000]);
    assert!(!process_exists(pid));
    let RunError::Lost { cause, was_running, .. } = lose(&executor, &add_one(1, 1)).await else { panic!("not lost") };
    assert_eq!((cause, was_running), (LostCause::Stopped, false));
}

/// Runs a job. `join!` polls its futures in order, so the job is sent before the executor is told to stop.
async fn biased(
    executor: &Executor,
    task: &gpufleet_schema::Task<'_>,
) -> Vec<gpufleet_worker::executor::FinishedOutput> {
    succeed(executor, task).await
}

#[tokio::test]
async fn a_hung_executor_is_killed_after_the_grace() {
    let executor = start().await;
    let pid = executor.pid();
    let task = misbehaving("spin");
    let (lost, ()) = tokio::join!(lose(&executor, &task), executor.stop(Duration::from_millis(100)));
    assert!(matches!(lost, RunError::Lost { cause: LostCause::Stopped, .. }), "{lost}");
    assert!(!process_exists(pid));
}

#[tokio::test]
async fn dropping_the_handle_ends_the_child() {
    let executor = start().await;
    let pid = executor.pid();
    drop(executor);
    poll_until("the child is gone", || !process_exists(pid)).await;
}

#[tokio::test]
async fn a_cancelled_job_leaves_the_executor_to_the_others() {
    let executor = start().await;
    let task = add_one(100_000, 50);
    for _ in 0..8 {
        // The job is dropped after a short wait, in whatever state it is then.
        drop(tokio::time::timeout(Duration::from_millis(2), succeed(&executor, &task)).await);
    }
    assert_eq!(u32s(&succeed(&executor, &add_one(10, 1)).await[0]), [1; 10]);
}

/// Returns what root sees inside an executor. Other users, even the one that started the executor, must be denied access.
fn seen_by_root<T>(inside: std::io::Result<T>) -> Option<T> {
    if !is_root() {
        assert_eq!(inside.err().map(|error| error.kind()), Some(std::io::ErrorKind::PermissionDenied));
        return None;
    }
    Some(inside.expect("root sees it"))
}

fn is_root() -> bool {
    // SAFETY: the call has no arguments and can't fail.
    unsafe { libc::geteuid() == 0 }
}

fn environment(pid: u32) -> Option<String> {
    seen_by_root(std::fs::read_to_string(format!("/proc/{pid}/environ")))
}

#[tokio::test]
async fn a_worker_that_is_not_root_is_closed_to_its_own_user() {
    use std::os::{
        fd::AsRawFd as _,
        unix::{
            fs::{OpenOptionsExt as _, PermissionsExt as _},
            process::CommandExt as _,
        },
    };
    const NOBODY: u32 = 65534;
    let as_nobody = |program: &str| {
        let mut command = Command::new(program);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // A file of keys that never arrives. The worker waits for it, with its address and password in memory.
    let keys = folder.path().join("keys");
    assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&keys).status().unwrap().success());
    // The child opens the program through this descriptor, so its user can do that even if the file is in a folder that only root can
    // enter.
    let program = std::fs::File::open(crate::harness::executable()).unwrap();
    // SAFETY: the descriptor is this test's own. It stays open in the child, which is started through it.
    assert_eq!(unsafe { libc::fcntl(program.as_raw_fd(), libc::F_SETFD, 0) }, 0);
    let mut worker = as_nobody(&format!("/proc/self/fd/{}", program.as_raw_fd()))
        .args(["run", "--pool", "default:allow=signed", "--trusted-key"])
        .arg(&keys)
        .env("GPUFLEET_AMQP_URL", "amqp://somebody:secret@127.0.0.1:1/")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut open = std::fs::OpenOptions::new();
    let open = open.write(true).custom_flags(libc::O_NONBLOCK);
    // Opening fails until the worker has opened the other end.
    let mut writer = None;
    poll_until("the worker reads its keys", || {
        writer = open.open(&keys).ok();
        writer.is_some()
    })
    .await;
    // `ps` must still show the command line.
    for (program, inside, is_open) in [("cat", "cmdline", true), ("cat", "environ", false), ("ls", "fd", false)] {
        let path = format!("/proc/{}/{inside}", worker.id());
        let looked = as_nobody(program).arg(path).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(looked.success(), is_open, "{inside}");
    }
    drop(writer);
    worker.wait().unwrap();
}

#[tokio::test]
async fn the_child_does_not_see_our_variables() {
    let executor = start().await;
    let Some(environment) = environment(executor.pid()) else { return };
    let ours = environment.split('\0').filter(|variable| variable.starts_with("GPUFLEET_"));
    for variable in ours {
        assert!(variable.starts_with("GPUFLEET_EMULATOR"), "{variable}");
    }
}

#[tokio::test]
async fn every_stream_of_an_executor_has_a_queue_of_the_hardware() {
    for (streams, connections) in [(4, 8), (12, 14), (100, 32)] {
        let (executor, _) = Executor::start(ExecutorOptions { streams, ..options() }).await.unwrap();
        let Some(environment) = environment(executor.pid()) else { return };
        let told = environment.split('\0').find_map(|variable| variable.strip_prefix("CUDA_DEVICE_MAX_CONNECTIONS="));
        assert_eq!(told, Some(connections.to_string().as_str()), "{streams} streams");
    }
}

/// Returns the value of a line in `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

#[tokio::test]
async fn an_executor_has_no_privileges_and_can_get_none() {
    let executor = start().await;
    let pid = executor.pid();
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    let mut users: Vec<_> = status(pid, "Uid").split_whitespace().map(str::to_owned).collect();
    users.dedup();
    // SAFETY: the call has no arguments and can't fail.
    let own = unsafe { libc::geteuid() };
    assert_eq!(users.len(), 1, "{users:?}");
    assert_eq!(users[0] == own.to_string(), own != 0, "root changes its user, other users do not: {users:?}");
    if own == 0 {
        assert!(!status(pid, "Groups").split_whitespace().any(|group| group == "0"), "root's groups are gone");
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        assert_eq!(
            (status(thread, "CapEff").as_str(), status(thread, "NoNewPrivs").as_str()),
            ("0000000000000000", "1")
        );
    }
}

#[tokio::test]
async fn an_executor_has_bounds_on_its_host_and_no_network() {
    let executor = start().await;
    let pid = executor.pid();
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    assert!(read("oom_score_adj").trim().parse::<i32>().unwrap() >= 500, "the worker outlives it");
    let limits = read("limits");
    let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap()[name.len()..].trim();
    assert!(limit("Max file size").starts_with("0 "), "{limits}");
    assert!(!limit("Max data size").starts_with("unlimited"), "{limits}");
    // Only root can see the namespaces of a hidden process, and not every kernel lets a process create its own.
    let Ok(network) = fs::read_link(format!("/proc/{pid}/ns/net")) else { return };
    let is_allowed =
        |flag: &str| Command::new("unshare").args([flag, "true"]).status().is_ok_and(|ended| ended.success());
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(network != own, is_allowed("-n") || is_allowed("-Un"));
}

#[tokio::test]
async fn an_executor_whose_user_does_not_exist_is_refused_with_the_way_out() {
    let options = ExecutorOptions { user: Some("nobody-of-that-name".to_owned()), ..options() };
    let refused = Executor::start(options).await.unwrap_err().to_string();
    assert!(refused.contains("nobody-of-that-name") && refused.contains("--executor-user"), "{refused}");
}

#[tokio::test]
async fn a_descriptor_that_was_left_open_does_not_reach_the_executor() {
    use std::os::fd::AsRawFd;
    let file = tempfile::tempfile().unwrap();
    // SAFETY: the call has no memory arguments. The copy is not closed in children, which this test is about; other children get it too.
    let leaked = unsafe { libc::dup(file.as_raw_fd()) };
    assert!(leaked > 2);
    let inode = |path: String| std::fs::metadata(path).map(|found| std::os::unix::fs::MetadataExt::ino(&found)).ok();
    let own = inode(format!("/proc/self/fd/{leaked}"));
    let executor = start().await;
    let open = seen_by_root(std::fs::read_dir(format!("/proc/{}/fd", executor.pid())));
    for descriptor in open.into_iter().flatten() {
        assert_ne!(inode(descriptor.unwrap().path().display().to_string()), own);
    }
    // SAFETY: the copy is this test's own.
    unsafe { libc::close(leaked) };
}

const PARENT_ROLE: &str = "GPUFLEET_TEST_PARENT_ROLE";

/// The test runs itself as the parent process, and kills it.
#[tokio::test]
async fn a_killed_parent_leaves_no_child() {
    if std::env::var_os(PARENT_ROLE).is_some() {
        let executor = start().await;
        println!("child {}", executor.pid());
        return std::future::pending().await;
    }
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "living::a_killed_parent_leaves_no_child", "--nocapture"])
        .env(PARENT_ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(parent.stdout.take().unwrap());
    let pid: u32 = output
        .lines()
        .find_map(|line| line.unwrap().split_once("child ").and_then(|(_, pid)| pid.trim().parse().ok()))
        .expect("the parent says which child it has");
    assert!(process_exists(pid));
    parent.kill().unwrap();
    parent.wait().unwrap();
    poll_until("the orphan is gone", || !process_exists(pid)).await;
}
