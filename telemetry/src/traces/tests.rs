use std::time::SystemTime;

use gpufleet_schema::{AttemptFinished, AttemptState, JobInfo, Priority, Program, Task, Timings};
use opentelemetry_sdk::trace::Sampler;

use super::*;

/// Traces whose spans stay in a queue for this many jobs.
fn queued(jobs: usize, sampler: Sampler) -> (Traces, mpsc::Receiver<Export>) {
    let (queue, waiting) = mpsc::channel(jobs);
    let scope = InstrumentationScope::builder("test").build();
    let ids = RandomIdGenerator::default();
    let shared = Shared { queue, counts: Arc::default(), parent: None, sampler: sampler.into(), ids, scope };
    (Traces { shared: Arc::new(shared) }, waiting)
}

fn exported(waiting: &mut mpsc::Receiver<Export>) -> Vec<SpanData> {
    let mut spans = Vec::new();
    while let Ok(Export::Spans(of_job)) = waiting.try_recv() {
        spans.extend(of_job);
    }
    spans
}

/// An attempt from second 10 to second 12 by the worker's clock.
fn finished(context: Option<TraceContext>, timings: Timings) -> AttemptFinished {
    let mut task = Task::new(Program::Catalog("saxpy".to_owned()));
    task.traceparent = context;
    let job = JobInfo::of(&task, "default".parse().unwrap(), Priority::Normal, None);
    AttemptFinished {
        device: Some(0),
        started_ms: Some(10_000),
        timings,
        job: Some(Box::new(job)),
        ..AttemptFinished::new(task.job_id, 1, "w".parse().unwrap(), 12_000, AttemptState::Succeeded)
    }
}

fn second(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

#[test]
fn the_stages_of_an_attempt_follow_each_other_below_it() {
    let (traces, mut waiting) = queued(1, Sampler::AlwaysOn);
    let timings = Timings {
        queue_us: 4_000_000,
        compile_us: 2_000_000,
        wait_us: 1_000_000,
        launches_us: vec![1_000_000, 500_000],
        ..Timings::default()
    };
    traces.attempt(&finished(Some(TraceContext::new(7, 8, true)), timings)).unwrap().replied(false);
    let spans = exported(&mut waiting);
    let found = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let times = |name: &str| (found(name).start_time, found(name).end_time);
    assert_eq!(times("queue"), (second(3), second(7)));
    assert_eq!(times("compile"), (second(7), second(9)));
    assert_eq!(times("wait"), (second(9), second(10)));
    assert_eq!(times("kernel").0, second(10));
    assert_eq!(times("attempt"), (second(7), second(12)));
    assert_eq!(found("reply").start_time, second(12));
    assert_eq!(spans.len(), 6, "stages without time are left out");
    let attempt = found("attempt").span_context.span_id();
    for (name, parent) in
        [("queue", SpanId::from(8)), ("attempt", SpanId::from(8)), ("kernel", attempt), ("reply", attempt)]
    {
        assert_eq!(found(name).parent_span_id, parent, "{name}");
        assert_eq!(found(name).span_context.trace_id(), TraceId::from(7), "{name}");
    }
}

#[test]
fn a_job_without_a_context_has_the_trace_of_its_id_and_its_spans_have_no_parent() {
    let (traces, mut waiting) = queued(1, Sampler::AlwaysOn);
    let finished = finished(None, Timings::default());
    traces.recorded(&finished, SystemTime::now());
    let span = exported(&mut waiting).pop().unwrap();
    assert_eq!(span.span_context.trace_id(), TraceId::from(finished.job_id.as_uuid().as_u128()));
    assert_eq!((span.parent_span_id, span.parent_span_is_remote), (SpanId::INVALID, false));
}

#[test]
fn a_trace_that_its_producer_does_not_record_has_no_spans_and_neither_has_one_that_is_not_sampled() {
    let (traces, mut waiting) = queued(4, Sampler::ParentBased(Box::new(Sampler::AlwaysOn)));
    let unrecorded = finished(Some(TraceContext::new(7, 8, false)), Timings::default());
    assert!(traces.attempt(&unrecorded).is_none());
    traces.recorded(&unrecorded, SystemTime::now());
    let (never, mut none) = queued(4, Sampler::ParentBased(Box::new(Sampler::AlwaysOff)));
    let untraced = finished(None, Timings::default());
    assert!(never.attempt(&untraced).is_none());
    let submit = never.begin_submit(untraced.job_id, None);
    assert!(!submit.context().is_sampled(), "workers and the recorder learn of the decision");
    never.submitted(&submit, untraced.job.as_deref().unwrap(), false);
    assert!(exported(&mut waiting).is_empty() && exported(&mut none).is_empty());
}

#[test]
fn a_lost_attempt_has_no_reply() {
    let (traces, mut waiting) = queued(1, Sampler::AlwaysOn);
    let lost = AttemptFinished { state: AttemptState::Lost, ..finished(None, Timings::default()) };
    traces.attempt(&lost).unwrap().replied(false);
    assert!(exported(&mut waiting).iter().all(|span| span.name != "reply"));
}

#[test]
fn a_full_queue_drops_the_spans_of_a_job_and_counts_them() {
    let (traces, mut waiting) = queued(1, Sampler::AlwaysOn);
    let finished = finished(None, Timings::default());
    let now = SystemTime::now();
    (0..3).for_each(|_| traces.recorded(&finished, now));
    assert_eq!((exported(&mut waiting).len(), traces.dropped()), (1, 2));
}

#[test]
fn a_clock_that_is_wrong_by_ages_gives_spans_from_1970_on() {
    let (traces, mut waiting) = queued(1, Sampler::AlwaysOn);
    let timings = Timings { queue_us: u64::MAX, wait_us: u64::MAX, ..Timings::default() };
    traces.attempt(&finished(None, timings)).unwrap().replied(true);
    for span in exported(&mut waiting) {
        assert!(span.start_time >= SystemTime::UNIX_EPOCH && span.end_time >= span.start_time, "{span:?}");
    }
}
