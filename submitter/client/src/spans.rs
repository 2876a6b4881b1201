//! The spans of submissions. Without the feature `traces` there are none, and the types here are empty.

use gpufleet_schema::{JobInfo, Task};
#[cfg(feature = "traces")]
use gpufleet_telemetry::{Submit, Traces};

#[cfg(feature = "traces")]
use std::time::Duration;

/// Time that closing a connection waits for the collector.
#[cfg(feature = "traces")]
const FLUSH_DEADLINE: Duration = Duration::from_secs(2);

/// The spans of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    #[cfg(feature = "traces")]
    pub(crate) traces: Option<Traces>,
}

/// The submission of a job, from the call to the broker's confirm.
#[derive(Debug, Default)]
pub(crate) struct SubmitSpan {
    #[cfg(feature = "traces")]
    open: Option<Submit>,
}

#[cfg(feature = "traces")]
impl Spans {
    /// Begins a span, which the task carries as the parent of what workers and the recorder do.
    pub(crate) fn begin(&self, task: &mut Task<'_>) -> SubmitSpan {
        let open = self.traces.as_ref().map(|traces| traces.begin_submit(task.job_id, task.traceparent));
        if let Some(open) = &open {
            task.traceparent = Some(open.context());
        }
        SubmitSpan { open }
    }

    pub(crate) fn end(&self, span: &SubmitSpan, job: &JobInfo, failed: bool) {
        if let (Some(traces), Some(open)) = (&self.traces, &span.open) {
            traces.submitted(open, job, failed);
        }
    }

    /// Exports the queued spans, as far as the collector accepts them in time.
    pub(crate) async fn flush(&self) {
        if let Some(traces) = &self.traces {
            traces.flush(FLUSH_DEADLINE).await;
        }
    }
}

#[cfg(not(feature = "traces"))]
impl Spans {
    pub(crate) fn begin(&self, _task: &mut Task<'_>) -> SubmitSpan {
        SubmitSpan::default()
    }

    pub(crate) fn end(&self, _span: &SubmitSpan, _job: &JobInfo, _failed: bool) {}

    pub(crate) async fn flush(&self) {}
}
