//! The task that exports spans in batches.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tracing::{debug, warn};

use super::{Counts, JobSpans};

/// A message to the export task.
#[derive(Debug)]
pub(super) enum Export {
    Spans(JobSpans),
    /// Answered when all spans before it are exported or dropped.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct Exporter {
    exporter: SpanExporter,
    counts: Arc<Counts>,
    failing: bool,
}

/// Number of spans with which a batch is exported, OpenTelemetry's default. A smaller batch is exported when its first span has waited for
/// [`GATHER_MAX`].
const BATCH_SPANS: usize = 512;
/// Maximum time that a span waits for others: long enough to gather them, and short enough to look at a job that has just ended.
const GATHER_MAX: Duration = Duration::from_secs(1);

impl Exporter {
    pub(super) fn new(exporter: SpanExporter, counts: Arc<Counts>) -> Self {
        Self { exporter, counts, failing: false }
    }

    /// Runs until the last [`super::Traces`] is dropped, and then exports the spans that still wait.
    pub(super) async fn run(mut self, mut waiting: mpsc::Receiver<Export>) {
        while let Some(first) = waiting.recv().await {
            let (mut spans, mut flushed) = (Vec::new(), Vec::new());
            let until = Instant::now() + GATHER_MAX;
            let mut next = Some(first);
            while let Some(export) = next {
                match export {
                    Export::Spans(of_job) => spans.extend(of_job),
                    Export::Flush(done) => flushed.push(done),
                }
                if spans.len() >= BATCH_SPANS || !flushed.is_empty() {
                    break;
                }
                next = timeout_at(until, waiting.recv()).await.unwrap_or_default();
            }
            self.export(spans).await;
            // An error means that the caller's deadline has passed.
            for done in flushed {
                let _gone = done.send(());
            }
        }
    }

    /// Exports spans. The exporter has a deadline of its own (`OTEL_EXPORTER_OTLP_TIMEOUT`), and retries after temporary errors.
    async fn export(&mut self, spans: Vec<SpanData>) {
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        match self.exporter.export(spans).await {
            Ok(()) => {
                debug!(spans = count, "spans exported");
                self.counts.exported.fetch_add(count, Ordering::Relaxed);
                self.failing = false;
            }
            Err(error) => {
                self.counts.dropped.fetch_add(count, Ordering::Relaxed);
                // Only the first of a row, because an absent collector would fill the log.
                if !std::mem::replace(&mut self.failing, true) {
                    warn!(%error, spans = count, "spans dropped, the collector did not take them");
                }
            }
        }
    }
}
