//! A short job has one event, which describes the job, its start and its end. A longer job is also reported when it
//! waits and when it runs.

use gpufleet_schema::{AttemptFinished, Event, JobId, JobState, Started};
use gpufleet_tests::{Ground, Producer, WAIT, busy, kernels, poll_until};

/// The run time after which a worker reports the start of a job, in milliseconds.
const START_TOLD_AFTER_MS: i64 = 100;

fn starts(events: &[Event], job_id: JobId) -> Vec<&Started> {
    let told = events.iter().filter_map(|event| match event {
        Event::Started(start) if start.job.job_id == job_id => Some(start),
        _ => None,
    });
    told.collect()
}

fn end(events: &[Event], job_id: JobId) -> &AttemptFinished {
    let mut told = events.iter().filter_map(|event| match event {
        Event::AttemptFinished(end) if end.job_id == job_id => Some(end),
        _ => None,
    });
    told.next().expect("the job has ended")
}

/// Returns an upper bound of the time for which the executor had the job.
fn lasted_ms(end: &AttemptFinished) -> i64 {
    end.at_ms - end.started_ms.expect("the job reached a device")
}

/// Runs jobs until one ends before its start is reported. The first jobs load their module, and the machine may be
/// busy.
async fn a_job_that_ends_soon(ground: &Ground, fleet: &Producer) -> (JobId, usize) {
    let mut jobs = 0;
    let soon = async {
        loop {
            let mut handle = fleet.submit(kernels::doubles(&[1.0]).label("team", "a")).await.unwrap();
            handle.wait(WAIT).await.unwrap();
            jobs += 1;
            let row = ground.final_job(handle.id()).await.job;
            if (row.finished_at.unwrap() - row.started_at.unwrap()).num_milliseconds() < START_TOLD_AFTER_MS {
                break handle.id();
            }
        }
    };
    let job_id = tokio::time::timeout(WAIT, soon).await.expect("some short job ends within 100 ms");
    (job_id, jobs)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_final_event_of_a_short_job_has_its_start_and_description() {
    let (ground, worker, fleet) = Ground::served("short-job").await;
    let (job_id, jobs) = a_job_that_ends_soon(&ground, &fleet).await;

    let history = ground.history(jobs).await;
    history.assert_holds();
    assert_eq!(starts(&history.events, job_id), Vec::<&Started>::new());
    let detail = ground.final_job(job_id).await;
    let (row, attempt) = (&detail.job, &detail.attempts[0]);
    assert_eq!((row.state, row.labels["team"].as_str()), (JobState::Succeeded, "a"));
    assert_eq!(row.kernel.as_deref(), Some("doubles"));
    assert!(row.client.is_some() && row.submitted_at.is_some() && row.input_bytes.is_some(), "{row:?}");
    assert_eq!((attempt.worker.as_str(), attempt.device), (worker.name(), Some(0)));
    assert_eq!(attempt.started_at, row.started_at);
    for event in &history.events {
        if let Event::AttemptFinished(end) = event
            && !starts(&history.events, end.job_id).is_empty()
        {
            assert!(lasted_ms(end) >= START_TOLD_AFTER_MS, "its start was reported too soon: {end:?}");
        }
    }
}

fn is_submitted(event: &Event, job_id: JobId) -> bool {
    matches!(event, Event::Submitted(submitted) if submitted.job.job_id == job_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sends_no_event_for_a_job_that_is_answered_soon() {
    let (ground, _worker, fleet) = Ground::served("answered-soon").await;
    let mut handles = Vec::new();
    // The first jobs may take longer, because they load their module and the machine may be busy.
    let spared = async {
        loop {
            let mut handle = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
            handle.wait(WAIT).await.unwrap();
            let job_id = handle.id();
            // The client reports this longer job. It would have reported the first job before this one.
            let later = fleet.submit(busy::for_seconds(3)).await.unwrap();
            let told = async || ground.seen_events().iter().any(|event| is_submitted(event, later.id()));
            poll_until("the client reports the longer job", told).await;
            handles.push(later);
            if !ground.seen_events().iter().any(|event| is_submitted(event, job_id)) {
                break job_id;
            }
            // The next quick job must not wait behind this longer one.
            handles.last_mut().expect("it was just added").wait(WAIT).await.unwrap();
            handles.push(handle);
        }
    };
    let job_id = tokio::time::timeout(WAIT, spared).await.expect("some job is answered soon");
    for handle in &mut handles {
        handle.wait(WAIT).await.unwrap();
    }
    ground.check_history(handles.len() + 1).await;
    let row = ground.final_job(job_id).await.job;
    assert!(row.client.is_some() && row.submitted_at.is_some() && row.kernel.is_some(), "{row:?}");
}

/// Most of the events gather while the first message with events is unconfirmed, so the client has to wait for more than one message.
#[tokio::test(flavor = "multi_thread")]
async fn a_closing_client_reports_all_jobs_that_still_wait() {
    let (ground, fleet) = Ground::with_client("closes-at-once").await;
    let jobs = (0..400).map(|_| kernels::doubles(&[1.0]).name("waits"));
    let jobs: Vec<JobId> = fleet.submit_many(jobs).await.into_iter().map(|job| job.unwrap().id()).collect();
    fleet.close().await;
    let told = async || {
        let events = ground.seen_events();
        jobs.iter().all(|job| events.iter().any(|event| is_submitted(event, *job)))
    };
    poll_until("the client has reported the jobs", told).await;
    ground.poll_job("waiting", jobs[0], |job| job.name.as_deref() == Some("waits")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_job_is_shown_running_and_its_final_event_has_the_same_start() {
    let (ground, _worker, fleet) = Ground::served("long-job").await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    ground.release_jobs();
    handle.wait(WAIT).await.unwrap();
    let history = ground.history(1).await;
    history.assert_holds();
    let (starts, end) = (starts(&history.events, handle.id()), end(&history.events, handle.id()));
    assert!(!starts.is_empty());
    for start in starts {
        assert_eq!((Some(start.at_ms), Some(&start.job)), (end.started_ms, end.job.as_deref()));
    }
    assert!(lasted_ms(end) >= START_TOLD_AFTER_MS);
}
