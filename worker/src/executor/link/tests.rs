use std::sync::Mutex;

use tokio::{
    net::UnixStream,
    sync::{Notify, Semaphore, oneshot, watch},
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    compiler::Compiler,
    executor::{
        flight::{Announcer, LatestMemory, STOOD_STILL, State},
        inputs::DeviceInputs,
        outgoing::Outgoing,
        phase::{self, Phase},
        printer::Printer,
        process::ChildProcess,
        programs::Code,
    },
    ipc::{DeviceInfo, frame::FrameReader, slab::Slab},
};

/// Time limit for steps that take almost no time.
const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn a_kernel_is_named_without_a_report_only_where_no_other_ran() {
    let [one, twice, two] =
        [&["a"][..], &["a", "a"], &["a", "b"]].map(|names| Vec::from_iter(names.iter().map(|name| name.to_string())));
    assert_eq!(only_kernel([&*one].into_iter()).as_deref(), Some("a"));
    assert_eq!(only_kernel([&*twice].into_iter()).as_deref(), Some("a"));
    assert_eq!(only_kernel([&*two].into_iter()), None);
    assert_eq!(only_kernel([&*one, &*one].into_iter()), None);
}

/// Creates the state of an executor, and the child's end of its socket, which the tests do not read.
fn shared(process: ChildProcess) -> (Arc<Shared>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let outgoing = Outgoing::over(ours.into_split().1);
    let shared = Shared {
        device: DeviceInfo::named(0, "GPU-1"),
        process,
        slab: Slab::new(Box::new(Announcer(outgoing.clone()))),
        inputs: DeviceInputs::default(),
        outgoing,
        printer: Arc::new(Printer::new().unwrap().0),
        state: Mutex::new(State::default()),
        lost: watch::Sender::new(None),
        streams: Arc::new(Semaphore::new(3)),
        streams_max: 3,
        compiler: Arc::new(Compiler::new(None)),
        memory: Mutex::new(LatestMemory::default()),
        heard: Notify::new(),
    };
    (Arc::new(shared), theirs)
}

async fn sent(shared: &Shared, job: u64) -> oneshot::Receiver<JobEnd> {
    sent_with(shared, job, "spin").await
}

async fn sent_with(shared: &Shared, job: u64, entry: &str) -> oneshot::Receiver<JobEnd> {
    let (answer, ending) = oneshot::channel();
    let pending = Pending {
        answer,
        phase: Phase::new(true, true),
        requests: None,
        program: Code::Ptx("").key(),
        entries: vec![entry.to_owned()],
        progress: None,
        turn: None,
        _memory: Arc::new(shared.slab.take(1).await.unwrap()),
        _stream: Arc::new(Arc::clone(&shared.streams).acquire_owned().await.unwrap()),
        next: None,
    };
    shared.state().pending.insert(job, pending);
    ending
}

/// Sends a train of jobs that run different kernels. Their time limits are one hour.
async fn sent_as_train(shared: &Shared, train: &[(u64, &str)]) -> Vec<oneshot::Receiver<JobEnd>> {
    let mut endings = Vec::new();
    for (index, (job, entry)) in train.iter().enumerate() {
        endings.push(sent_with(shared, *job, entry).await);
        let mut state = shared.state();
        state.clocks.start(*job, Duration::from_secs(3600), Instant::now());
        if index > 0 {
            state.clocks.suspend(*job, Instant::now());
        }
        let pending = state.pending.get_mut(job).unwrap();
        pending.phase = if index > 0 { Phase::behind() } else { Phase::new(false, false) };
        pending.next = train.get(index + 1).map(|(next, _)| *next);
    }
    endings
}

#[tokio::test]
async fn a_fault_names_the_job_of_a_train_that_was_running() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    let endings = sent_as_train(&shared, &[(1, "spin"), (2, "spin"), (3, "spin")]).await;
    let outcome = || JobEnd::Finished { outcome: Ok(()), timings: Timings::default() };
    finish(&shared, 1, outcome());
    ends_at_an_assert(&shared, None);
    let [first, second, third] = <[_; 3]>::try_from(endings).unwrap();
    assert!(matches!(first.await.unwrap(), JobEnd::Finished { outcome: Ok(()), .. }));
    match second.await.unwrap() {
        JobEnd::Finished { outcome: Err(failure), .. } => assert_eq!(failure.code, FailureCode::KernelFault),
        other => panic!("{other:?}"),
    }
    assert!(matches!(third.await.unwrap(), JobEnd::Lost(Loss { cause: LostCause::Neighbour, .. })));
}

#[tokio::test]
async fn all_jobs_of_a_train_are_suspects_if_the_child_dies_without_a_word() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    let endings = sent_as_train(&shared, &[(1, "spin"), (2, "spin")]).await;
    bury(&shared, None, None, &Exit { status: None, tail: String::new() });
    for ending in endings {
        assert!(matches!(ending.await.unwrap(), JobEnd::Lost(Loss { cause: LostCause::Died, .. })));
    }
}

#[tokio::test]
async fn the_child_is_not_killed_for_a_job_that_waits_behind_another() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    let _endings = sent_as_train(&shared, &[(1, "spin"), (2, "spin")]).await;
    let killed_for = || shared.state().killed_for;
    shared.kill_for(2, Cut::Cancelled);
    assert_eq!(killed_for(), None);
    assert!(shared.state().clocks.time_left(2, Instant::now() + Duration::from_secs(7200)).is_some());
    finish(&shared, 1, JobEnd::Released);
    assert!(shared.state().clocks.time_left(2, Instant::now() + Duration::from_secs(7200)).is_none(), "it runs now");
    shared.kill_for(2, Cut::Cancelled);
    assert_eq!(killed_for(), Some((2, Cut::Cancelled)));
}

/// Ends an executor because an assert of this kernel failed.
fn ends_at_an_assert(shared: &Shared, kernel: Option<&str>) {
    let poison = Poison {
        code: 710,
        name: "CUDA_ERROR_ASSERT".into(),
        text: "device-side assert triggered".into(),
        seen_by: Some(1),
        kernel: kernel.map(str::to_owned),
        report: None,
        device: false,
    };
    bury(shared, Some(poison), None, &Exit { status: None, tail: String::new() });
}

#[tokio::test]
async fn a_job_that_was_alone_is_to_blame_whatever_kernel_is_named() {
    for kernel in [None, Some("spin"), Some("nope")] {
        let (process, _end) = ChildProcess::of_a_stuck_child();
        let (shared, _child) = shared(process);
        let alone = sent(&shared, 1).await;
        ends_at_an_assert(&shared, kernel);
        match alone.await.unwrap() {
            JobEnd::Finished { outcome: Err(failure), .. } => assert_eq!(failure.code, FailureCode::KernelFault),
            other => panic!("{kernel:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_kernel_that_no_job_runs_clears_no_job() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    let both = [sent_with(&shared, 1, "one").await, sent_with(&shared, 2, "other").await];
    ends_at_an_assert(&shared, Some("nope"));
    for ending in both {
        match ending.await.unwrap() {
            JobEnd::Lost(loss) => assert_eq!(loss.cause, LostCause::Suspect),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_job_whose_arrays_move_is_never_suspected() {
    let dies = |shared: &Shared| bury(shared, None, None, &Exit { status: None, tail: String::new() });
    let requests = [ChildRequest::Inputs(vec![0]), ChildRequest::Outputs];
    for (is_fault, request) in [true, false].into_iter().flat_map(|fault| requests.clone().map(|asked| (fault, asked)))
    {
        let (process, _end) = ChildProcess::of_a_stuck_child();
        let (shared, _child) = shared(process);
        let (runs, waits) = (sent(&shared, 1).await, sent(&shared, 2).await);
        super::asks(&shared, 2, request);
        if is_fault {
            ends_at_an_assert(&shared, None)
        } else {
            dies(&shared)
        }
        match (is_fault, runs.await.unwrap()) {
            (true, JobEnd::Finished { outcome: Err(failure), .. }) => {
                assert_eq!(failure.code, FailureCode::KernelFault, "it was alone");
            }
            (false, JobEnd::Lost(loss)) => assert_ne!(loss.cause, LostCause::Neighbour),
            (_, other) => panic!("{other:?}"),
        }
        match waits.await.unwrap() {
            JobEnd::Lost(loss) => assert_eq!(loss.cause, LostCause::Neighbour),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_job_whose_outputs_have_left_is_not_suspected_either() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    let ending = sent(&shared, 1).await;
    super::asks(&shared, 1, ChildRequest::Outputs);
    shared.go(1);
    bury(&shared, None, None, &Exit { status: None, tail: String::new() });
    match ending.await.unwrap() {
        JobEnd::Lost(loss) => assert_eq!(loss.cause, LostCause::Neighbour),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_is_passed_on_and_a_job_without_a_caller_is_released() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, child) = shared(process);
    let _ending = sent(&shared, 1).await;
    let (sender, mut requests) = phase::requests();
    shared.state().pending.get_mut(&1).unwrap().requests = Some(sender);
    super::asks(&shared, 1, ChildRequest::Inputs(vec![3]));
    assert_eq!(requests.try_recv(), Ok(ChildRequest::Inputs(vec![3])));
    shared.go(1);
    drop(requests);
    super::asks(&shared, 1, ChildRequest::Outputs);
    let child = child.into_std().unwrap();
    child.set_nonblocking(false).unwrap();
    let mut child = FrameReader::over(child);
    let released = tokio::task::spawn_blocking(move || {
        loop {
            if let Some((ToExecutor::Release { job }, _)) = child.read().unwrap() {
                return job;
            }
        }
    });
    assert_eq!(tokio::time::timeout(DEADLINE, released).await.expect("it is released").unwrap(), 1);
}

#[tokio::test]
async fn an_executor_that_answers_more_pieces_than_it_was_sent_is_faulty() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    let answers = shared.copies(1, 0, 2);
    assert!((0..2).all(|_| super::copied(&shared, 1, 0, Ok(()))) && !super::copied(&shared, 1, 0, Ok(())));
    drop(answers);
    assert!(super::copied(&shared, 1, 0, Ok(())) && super::copied(&shared, 1, 1, Ok(())), "their reader has given up");
}

#[tokio::test]
async fn no_piece_is_awaited_once_the_executor_has_ended() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    let before = shared.copies(1, 0, 1);
    bury(&shared, None, None, &Exit { status: None, tail: String::new() });
    let after = shared.copies(1, 0, 1);
    assert!(before.recv().is_err() && after.recv().is_err());
}

#[tokio::test]
async fn an_executor_says_which_jobs_wait_and_which_go_on() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _queue) = shared(process);
    let (now, limit) = (Instant::now(), Duration::from_secs(10));
    for (job, limit) in [(1, 100 * limit), (2, limit), (3, limit)] {
        shared.state().clocks.start(job, limit, now);
    }
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut incoming = Incoming::new(UnixStream::from_std(ours).unwrap().into_split().0);
    for said in [FromExecutor::Waits { job: 2 }, FromExecutor::Waits { job: 3 }, FromExecutor::GoesOn { job: 3 }] {
        frame::write(&theirs, &said).unwrap();
    }
    drop(theirs);
    assert_eq!(hear(&shared, &mut incoming, &mut None).await, None);
    let later = now + 5 * limit;
    let time_left = |job| shared.state().clocks.time_left(job, later);
    assert!(time_left(2).is_some_and(|until| until >= now + 100 * limit), "it waits for the first");
    assert_eq!(time_left(3), None, "its time has begun");
}

#[tokio::test]
async fn texts_of_an_executor_are_cut_to_what_a_reply_holds() {
    use gpufleet_schema::bounds::{FAILURE_DETAIL_BYTES_MAX, FAILURE_MESSAGE_BYTES_MAX};
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _queue) = shared(process);
    let ending = sent(&shared, 1).await;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut incoming = Incoming::new(UnixStream::from_std(ours).unwrap().into_split().0);
    let long = "x".repeat(1 << 20);
    let failure = Failure { detail: Some(long.clone()), ..Failure::new(Verdict::User, FailureCode::LaunchError, "") };
    let failure = Failure { message: long.clone(), ..failure };
    let poison = Poison {
        code: 700,
        name: long.clone(),
        text: long.clone(),
        seen_by: None,
        kernel: None,
        report: None,
        device: true,
    };
    let said = [
        FromExecutor::Finished { job: 1, outcome: Err(failure), timings: Timings::default() },
        FromExecutor::Unpinned { segment: 1, reason: long },
        FromExecutor::Poisoned(poison),
    ];
    // Written from a thread, because the socket's buffer can't hold all of them.
    let saying = std::thread::spawn(move || said.iter().for_each(|said| frame::write(&theirs, said).unwrap()));
    let mut poison = None;
    assert_eq!(hear(&shared, &mut incoming, &mut poison).await, None);
    saying.join().unwrap();
    match ending.await.unwrap() {
        JobEnd::Finished { outcome: Err(failure), .. } => {
            assert_eq!(failure.message.len(), FAILURE_MESSAGE_BYTES_MAX);
            assert_eq!(failure.detail.map(|detail| detail.len()), Some(FAILURE_DETAIL_BYTES_MAX));
        }
        other => panic!("{other:?}"),
    }
    assert!(describe(&poison.unwrap()).len() < 4 << 10);
    assert!(shared.state().unpinned.as_ref().is_some_and(|reason| reason.len() < 4 << 10));
}

#[tokio::test]
async fn jobs_of_an_executor_that_does_not_die_are_answered_and_its_device_is_suspect() {
    let (process, _end) = ChildProcess::of_a_stuck_child();
    let (shared, _child) = shared(process);
    // The child never closes its end of the socket.
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let listening = listen(Arc::clone(&shared), Incoming::new(ours.into_split().0));
    let (limited, neighbour) = (sent(&shared, 1).await, sent(&shared, 2).await);
    shared.kill_for(1, Cut::TimeLimit);
    listening.await;
    match limited.await.unwrap() {
        JobEnd::Finished { outcome: Err(failure), .. } => assert_eq!(failure.code, FailureCode::TimeLimit),
        other => panic!("{other:?}"),
    }
    match neighbour.await.unwrap() {
        JobEnd::Lost(loss) => assert_eq!(loss.cause, LostCause::Neighbour),
        other => panic!("{other:?}"),
    }
    let loss = shared.lost().await;
    assert_eq!(loss.cause, LostCause::Device);
    assert!(loss.reason.contains("time limit") && loss.reason.contains("did not end"), "{}", loss.reason);
}

#[tokio::test]
async fn a_job_that_ended_while_the_worker_stood_still_is_not_cut_and_one_that_did_not_is() {
    const LIMIT: Duration = Duration::from_millis(50);
    for has_ended in [true, false] {
        let (process, _end) = ChildProcess::of_a_stuck_child();
        let (shared, _queue) = shared(process);
        let ending = sent(&shared, 1).await;
        shared.state().clocks.start(1, LIMIT, Instant::now());
        let cancel = CancellationToken::new();
        let mut waiting = Box::pin(shared.wait(1, ending, LIMIT, &cancel));
        assert!(futures::poll!(&mut waiting).is_pending());
        // Nothing else runs on this thread's runtime.
        std::thread::sleep(LIMIT + 2 * STOOD_STILL);
        tokio::select! {
            biased;
            ended = &mut waiting => panic!("{ended:?}"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        assert!(shared.state().killed_for.is_none(), "what it said was not read yet");
        if has_ended {
            finish(&shared, 1, JobEnd::Finished { outcome: Ok(()), timings: Timings::default() });
            assert!(matches!(waiting.await, JobEnd::Finished { outcome: Ok(()), .. }));
            continue;
        }
        let cut = async {
            while shared.state().killed_for.is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = &mut waiting => panic!("{ended:?}"),
            cut = tokio::time::timeout(DEADLINE, cut) => cut.expect("it is cut"),
        }
        assert_eq!(shared.state().killed_for, Some((1, Cut::TimeLimit)));
    }
}
