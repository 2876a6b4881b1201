//! Traces of jobs, exported over OTLP.
//!
//! Spans are made when a job's stages are over, from the timings that its attempt reports anyway. They wait in a bounded queue, from which
//! one task exports them; no job waits for a span. When the queue is full, or the collector does not take a batch, spans are dropped and
//! counted.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gpufleet_schema::{JobId, TraceContext};
use opentelemetry::{
    Context, InstrumentationScope, SpanId, TraceFlags, TraceId,
    trace::{SpanContext, SpanKind, TraceContextExt as _, TraceState},
};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{Config, IdGenerator, RandomIdGenerator, SamplingDecision, ShouldSample, SpanData, SpanExporter as _},
};
use tokio::sync::mpsc;

use self::export::{Export, Exporter};

mod export;
mod job;
#[cfg(test)]
mod tests;

pub use job::{AttemptSpan, Submit};

/// Exports the spans of this process. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Traces {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: mpsc::Sender<Export>,
    counts: Arc<Counts>,
    /// The span of the program that started this one.
    parent: Option<TraceContext>,
    sampler: Box<dyn ShouldSample>,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
}

/// Spans since the process started.
#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// Why traces can't be exported.
#[derive(Debug, thiserror::Error)]
#[error("failed to set up the export of traces: {0}; check the variables OTEL_EXPORTER_OTLP_*")]
pub struct TracesError(String);

/// The spans of a job that wait together: all are exported, or none.
type JobSpans = Vec<SpanData>;

/// Maximum number of jobs whose spans wait for the exporter. With about ten spans for each, they take a few megabytes.
const JOBS_WAITING_MAX: usize = 1024;
/// The variables that turn tracing on; one is enough, as OpenTelemetry's specification says.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The variables that turn tracing off even then.
const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTERS: &str = "OTEL_TRACES_EXPORTER";
/// The variable that a traced program sets for the programs that it starts.
const PARENT: &str = "TRACEPARENT";
/// Time limit for connecting to the collector. A collector in the same network answers within milliseconds.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

impl Traces {
    /// Starts the export that the environment variables describe, under this service name unless `OTEL_SERVICE_NAME` has another. `None` if
    /// they name no collector. Needs a Tokio runtime.
    pub fn from_environment(service: &'static str) -> Result<Option<Self>, TracesError> {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let is_off = set(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set(EXPORTERS).is_some_and(|exporters| exporters != "otlp");
        if is_off || !ENDPOINTS.iter().any(|name| set(name).is_some()) {
            return Ok(None);
        }
        Self::start(service).map(Some)
    }

    fn start(service: &'static str) -> Result<Self, TracesError> {
        // The HTTP client takes TLS from the provider of the process. An error means that there is one already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let failed = |error: &dyn std::error::Error| TracesError(error.to_string());
        let client = reqwest::Client::builder().connect_timeout(CONNECT_DEADLINE).build().map_err(|it| failed(&it))?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
        let mut exporter = exporter.map_err(|error| failed(&error))?;
        let has_name = env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty());
        let resource = if has_name { Resource::builder() } else { Resource::builder().with_service_name(service) };
        exporter.set_resource(&resource.build());
        let (queue, waiting) = mpsc::channel(JOBS_WAITING_MAX);
        let counts = Arc::<Counts>::default();
        tokio::spawn(Exporter::new(exporter, Arc::clone(&counts)).run(waiting));
        // The SDK reads OTEL_TRACES_SAMPLER and its argument here.
        let sampler = Config::default().sampler;
        let parent = env::var(PARENT).ok().and_then(|text| text.parse().ok());
        let scope = InstrumentationScope::builder("gpufleet").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self {
            shared: Arc::new(Shared { queue, counts, parent, sampler, ids: RandomIdGenerator::default(), scope }),
        })
    }

    /// Returns the number of spans that the collector accepted.
    pub fn exported(&self) -> u64 {
        self.shared.counts.exported.load(Ordering::Relaxed)
    }

    /// Returns the number of spans that were dropped, because too many waited or because the collector did not accept them.
    pub fn dropped(&self) -> u64 {
        self.shared.counts.dropped.load(Ordering::Relaxed)
    }

    /// Exports the spans that wait, or gives up when the deadline has passed. Cancelling is harmless.
    pub async fn flush(&self, deadline: Duration) {
        let (done, flushed) = tokio::sync::oneshot::channel();
        let flush = async {
            // An error means that the runtime is ending.
            if self.shared.queue.send(Export::Flush(done)).await.is_ok() {
                drop(flushed.await);
            }
        };
        drop(tokio::time::timeout(deadline, flush).await);
    }

    /// Returns the context in which a job's spans are recorded: its own, or if it has none, a new trace with the id of the job. `None` if
    /// the trace is not recorded.
    fn sampled(&self, job_id: JobId, context: Option<TraceContext>) -> Option<TraceContext> {
        let trace_id = context.map_or(job_id.as_uuid().as_u128(), |context| context.trace_id);
        let span_id = context.map_or(0, |context| context.span_id);
        self.is_sampled(trace_id, context).then(|| TraceContext::new(trace_id, span_id, true))
    }

    fn is_sampled(&self, trace_id: u128, parent: Option<TraceContext>) -> bool {
        let parent = parent.map(|parent| Context::new().with_remote_span_context(span_context(parent, true)));
        let kind = SpanKind::Internal;
        let sampling =
            self.shared.sampler.should_sample(parent.as_ref(), TraceId::from(trace_id), "job", &kind, &[], &[]);
        sampling.decision == SamplingDecision::RecordAndSample
    }

    fn new_span_id(&self) -> u64 {
        u64::from_be_bytes(self.shared.ids.new_span_id().to_bytes())
    }

    /// Queues the spans of a job. They are dropped if too many wait.
    fn offer(&self, spans: JobSpans) {
        let count = spans.len() as u64;
        if self.shared.queue.try_send(Export::Spans(spans)).is_err() {
            self.shared.counts.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }
}

fn span_context(context: TraceContext, is_remote: bool) -> SpanContext {
    let flags = TraceFlags::new(context.flags);
    SpanContext::new(
        TraceId::from(context.trace_id),
        SpanId::from(context.span_id),
        flags,
        is_remote,
        TraceState::default(),
    )
}
