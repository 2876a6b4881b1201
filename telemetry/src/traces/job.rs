//! The spans of a job, made from the times that are known when a stage is over.
//!
//! A producer's `submit` is the parent of what other processes record: `queue` and `attempt` (with the stages of the attempt, and its
//! `reply`) by a worker, `record` by the recorder. A worker knows how long each stage took, but not when each began, so the stages follow
//! each other from the receipt of the job on.

use std::time::{Duration, SystemTime};

use gpufleet_schema::{AttemptFinished, AttemptState, JobId, JobInfo, TraceContext};
use opentelemetry::{
    KeyValue, SpanId,
    trace::{SpanKind, Status},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::{JobSpans, Traces, span_context};

const JOB_ID: &str = "gpufleet.job_id";
const POOL: &str = "gpufleet.pool";
const KERNEL: &str = "gpufleet.kernel";
const ATTEMPT: &str = "gpufleet.attempt";
const WORKER: &str = "gpufleet.worker";
const DEVICE: &str = "gpufleet.device";
const STATE: &str = "gpufleet.state";

/// A submission that has begun. The task carries [`Submit::context`].
#[derive(Debug)]
pub struct Submit {
    context: TraceContext,
    parent: u64,
    begun: SystemTime,
}

/// An attempt that has ended, and whose reply is on its way.
#[derive(Debug)]
pub struct AttemptSpan {
    traces: Traces,
    context: TraceContext,
    spans: JobSpans,
    span_id: u64,
    ended: SystemTime,
    /// A lost attempt has no reply.
    replies: bool,
}

/// A span of this crate's making, before it has its identity.
struct Draft {
    name: &'static str,
    kind: SpanKind,
    from: SystemTime,
    to: SystemTime,
}

impl Submit {
    /// The parent of the spans that other processes record.
    pub fn context(&self) -> TraceContext {
        self.context
    }
}

impl Traces {
    /// Begins a job's submission, below the span `parent` or that of the program that started this one (`TRACEPARENT`). Whether the trace
    /// is recorded is decided here for all processes.
    pub fn begin_submit(&self, job_id: JobId, parent: Option<TraceContext>) -> Submit {
        let parent = parent.or(self.shared.parent);
        let trace_id = parent.map_or(job_id.as_uuid().as_u128(), |parent| parent.trace_id);
        let context = TraceContext::new(trace_id, self.new_span_id(), self.is_sampled(trace_id, parent));
        Submit { context, parent: parent.map_or(0, |parent| parent.span_id), begun: SystemTime::now() }
    }

    /// Records a submission that the broker has confirmed, or that failed.
    pub fn submitted(&self, submit: &Submit, job: &JobInfo, failed: bool) {
        if !submit.context.is_sampled() {
            return;
        }
        let draft = Draft { name: "submit", kind: SpanKind::Producer, from: submit.begun, to: SystemTime::now() };
        let mut span = self.span(draft, submit.context, submit.parent, submit.context.span_id);
        span.attributes = described(job);
        if failed {
            span.status = Status::error("not confirmed");
        }
        self.offer(vec![span]);
    }

    /// The spans of an attempt, if its trace is recorded.
    pub fn attempt(&self, finished: &AttemptFinished) -> Option<AttemptSpan> {
        let job = finished.job.as_deref();
        let context = self.sampled(finished.job_id, job.and_then(|job| job.traceparent))?;
        let timings = &finished.timings;
        let started = at(finished.started_ms.unwrap_or(finished.at_ms));
        let received = before(started, timings.compile_us.saturating_add(timings.wait_us));
        let span_id = self.new_span_id();
        let stages = [
            ("compile", timings.compile_us),
            ("wait", timings.wait_us),
            ("fetch", timings.fetch_us),
            ("load", timings.load_us),
            ("copy in", timings.copy_in_us),
            ("kernel", timings.kernel_us()),
            ("copy out", timings.copy_out_us),
        ];
        let mut to = received;
        let mut spans = Vec::with_capacity(stages.len() + 3);
        let queue = Draft { name: "queue", kind: SpanKind::Internal, from: before(received, timings.queue_us), to };
        spans.push(self.span(queue, context, context.span_id, self.new_span_id()));
        // A stage that took no time did not happen.
        for (name, us) in stages.into_iter().filter(|(_, us)| *us > 0) {
            let from = to;
            to = after(from, us);
            spans.push(self.span(
                Draft { name, kind: SpanKind::Internal, from, to },
                context,
                span_id,
                self.new_span_id(),
            ));
        }
        let ended = at(finished.at_ms).max(to);
        let draft = Draft { name: "attempt", kind: SpanKind::Consumer, from: received, to: ended };
        let mut attempt = self.span(draft, context, context.span_id, span_id);
        attempt.attributes = job.map(described).unwrap_or_else(|| vec![named(JOB_ID, finished.job_id)]);
        attempt.attributes.extend([
            KeyValue::new(ATTEMPT, i64::from(finished.attempt)),
            named(WORKER, &finished.worker),
            KeyValue::new(STATE, finished.state.to_string()),
        ]);
        attempt.attributes.extend(finished.device.map(|device| KeyValue::new(DEVICE, i64::from(device))));
        if let Some(failure) = &finished.failure {
            attempt.status = Status::error(failure.code.to_string());
        }
        spans.push(attempt);
        let replies = finished.state != AttemptState::Lost;
        Some(AttemptSpan { traces: self.clone(), context, spans, span_id, ended, replies })
    }

    /// Records that the recorder has committed an attempt that it received at this time.
    pub fn recorded(&self, finished: &AttemptFinished, received: SystemTime) {
        let job = finished.job.as_deref();
        let Some(context) = self.sampled(finished.job_id, job.and_then(|job| job.traceparent)) else { return };
        let draft = Draft { name: "record", kind: SpanKind::Consumer, from: received, to: SystemTime::now() };
        let mut span = self.span(draft, context, context.span_id, self.new_span_id());
        span.attributes = vec![named(JOB_ID, finished.job_id), KeyValue::new(ATTEMPT, i64::from(finished.attempt))];
        self.offer(vec![span]);
    }

    fn span(&self, draft: Draft, context: TraceContext, parent: u64, span_id: u64) -> SpanData {
        let Draft { name, kind, from, to } = draft;
        SpanData {
            span_context: span_context(TraceContext { span_id, ..context }, false),
            parent_span_id: SpanId::from(parent),
            // Another process recorded the span in the job's context.
            parent_span_is_remote: parent != 0 && parent == context.span_id,
            span_kind: kind,
            name: name.into(),
            start_time: from,
            end_time: to.max(from),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.shared.scope.clone(),
        }
    }
}

impl AttemptSpan {
    /// Exports the attempt. Its reply, if it has one, was confirmed just now, or failed.
    pub fn replied(mut self, failed: bool) {
        if self.replies {
            let draft = Draft { name: "reply", kind: SpanKind::Producer, from: self.ended, to: SystemTime::now() };
            let mut reply = self.traces.span(draft, self.context, self.span_id, self.traces.new_span_id());
            if failed {
                reply.status = Status::error("not confirmed");
            }
            self.spans.push(reply);
        }
        self.traces.offer(self.spans);
    }
}

fn described(job: &JobInfo) -> Vec<KeyValue> {
    vec![named(JOB_ID, job.job_id), named(POOL, &job.pool), KeyValue::new(KERNEL, job.kernel.clone())]
}

fn named(key: &'static str, value: impl ToString) -> KeyValue {
    KeyValue::new(key, value.to_string())
}

fn at(unix_ms: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(unix_ms).unwrap_or(0))
}

/// Returns the time `us` microseconds earlier, but never before 1970, because a producer's clock may be arbitrarily wrong.
fn before(time: SystemTime, us: u64) -> SystemTime {
    time.checked_sub(Duration::from_micros(us)).unwrap_or(SystemTime::UNIX_EPOCH).max(SystemTime::UNIX_EPOCH)
}

fn after(time: SystemTime, us: u64) -> SystemTime {
    time.checked_add(Duration::from_micros(us)).unwrap_or(time)
}
