//! The spans of jobs that a client, a worker and the recorder export, as the harness's collector receives them.

use gpufleet::schema::{Encoding, JobId, OneOrMany, TraceContext, topology};
use gpufleet_local::Signal;
use gpufleet_tests::{CollectedSpan, Collector, Ground, METRICS, WAIT, kernels};
use gpufleet_transport::{Message, Properties};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The rounding of times. Events and tasks have whole milliseconds, so the spans of two processes for one moment differ
/// by up to two.
const ROUNDING_NANOS: u64 = 2_000_000;
/// The spans that a worker exports for every job with outputs.
const OF_A_WORKER: [&str; 4] = ["queue", "attempt", "kernel", "reply"];

/// Starts a fleet whose worker and recorder export to this collector.
async fn traced(label: &str, collector: &Collector) -> Ground {
    let endpoint = collector.endpoint();
    Ground::shared_as(label, |fleet| {
        fleet.worker_env(ENDPOINT, endpoint).recorder_process(true).recorder_env(ENDPOINT, endpoint)
    })
    .await
}

/// Returns the trace id of a job whose producer has no trace of its own.
fn trace_of(job: JobId) -> u128 {
    job.as_uuid().as_u128()
}

fn named<'a>(spans: &'a [CollectedSpan], name: &str) -> &'a CollectedSpan {
    let mut found = spans.iter().filter(|span| span.span.name == name);
    let one = found.next().unwrap_or_else(|| panic!("no {name} in {spans:#?}"));
    assert!(found.next().is_none(), "more than one {name}");
    one
}

#[tokio::test(flavor = "multi_thread")]
async fn one_submit_gives_one_trace_over_three_processes() {
    let collector = Collector::start().await;
    let ground = traced("traces", &collector).await;
    let _worker = ground.worker().await;
    let folder = tempfile::tempdir().unwrap();
    let environment = [
        ("GPUFLEET_AMQP_URL", ground.endpoints().amqp_url.as_str()),
        ("GPUFLEET_DATABASE_URL", ground.endpoints().database_url.as_str()),
        (ENDPOINT, collector.endpoint()),
    ];
    let job = ["saxpy", "--arg", "a=2", "--fill", "x=f32[4]:1.5", "--zeros", "y=f32[4]"];
    let submit = [&["submit"], &job[..], &["-o", "json"]].concat();
    let job = gpufleet_tests::gpufleet_command(folder.path(), &environment, &submit).await.json();
    let job_id: JobId = job["job_id"].as_str().unwrap_or_else(|| panic!("{job}")).parse().unwrap();

    let names = [&OF_A_WORKER[..], &["submit", "load", "copy out", "record"]].concat();
    let spans = collector.poll_trace(trace_of(job_id), &names).await;
    let span = |name| named(&spans, name);
    let (submit, queue, attempt, reply, record) =
        (span("submit"), span("queue"), span("attempt"), span("reply"), span("record"));
    assert_eq!(submit.service, "gpufleet");
    assert!(submit.span.parent_span_id.is_empty(), "it is the root");
    assert_eq!(record.service, "gpufleet-ledger");
    for child in [queue, attempt, record] {
        assert!(child.is_child_of(submit), "{child:#?}");
    }
    let stages: Vec<_> = spans.iter().filter(|span| span.is_child_of(attempt)).collect();
    let order: Vec<_> = stages.iter().map(|stage| stage.span.name.as_str()).collect();
    let expected = ["compile", "wait", "fetch", "load", "copy in", "kernel", "copy out", "reply"];
    let expected: Vec<_> = expected.into_iter().filter(|name| order.contains(name)).collect();
    assert_eq!(order, expected);
    for of_worker in [&[queue, attempt][..], &stages].concat() {
        assert_eq!(of_worker.service, "gpufleet-worker");
    }

    // The spans follow each other without gaps.
    assert!(submit.span.start_time_unix_nano <= queue.span.start_time_unix_nano + ROUNDING_NANOS);
    assert_eq!(queue.span.end_time_unix_nano, attempt.span.start_time_unix_nano);
    let mut end = attempt.span.start_time_unix_nano;
    for stage in stages.iter().filter(|stage| stage.span.name != "reply") {
        assert_eq!(stage.span.start_time_unix_nano, end, "{stage:#?}");
        end = stage.span.end_time_unix_nano;
    }
    assert!(end <= attempt.span.end_time_unix_nano);
    assert_eq!(reply.span.start_time_unix_nano, attempt.span.end_time_unix_nano);
    assert!(record.span.end_time_unix_nano + ROUNDING_NANOS >= attempt.span.end_time_unix_nano);
    assert_eq!(attempt.text("gpufleet.job_id"), Some(job_id.to_string().as_str()));
    assert_eq!(attempt.text("gpufleet.state"), Some("succeeded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_of_a_message_belongs_to_the_trace_that_it_names_and_none_to_one_that_is_not_recorded() {
    let collector = Collector::start().await;
    let ground = traced("traces-packed", &collector).await;
    let worker = ground.worker().await;
    let fleet = ground.client().await;
    let context = |trace_id, sampled| TraceContext::new(trace_id, 0xfeed + trace_id as u64, sampled);
    let contexts = [context(0xa1, true), context(0xa2, true), context(0xa3, false)];
    let jobs = contexts.map(|context| kernels::doubles(&[1.0]).traceparent(context));
    for handle in fleet.submit_many(jobs).await {
        handle.unwrap().wait(WAIT).await.unwrap();
    }
    for context in &contexts[..2] {
        let spans = collector.poll_trace(context.trace_id, &[&OF_A_WORKER[..], &["record"]].concat()).await;
        for name in ["queue", "attempt", "record"] {
            assert_eq!(named(&spans, name).span.parent_span_id, context.span_id.to_be_bytes());
        }
    }
    // A stopping worker exports all waiting spans.
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    assert!(collector.trace(contexts[2].trace_id).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_header_of_a_foreign_producer_is_the_parent_of_its_job() {
    let collector = Collector::start().await;
    let ground = traced("traces-foreign", &collector).await;
    let _worker = ground.worker().await;
    let context = TraceContext::new(0xf0, 0xf1, true);
    let task = kernels::doubles(&[1.0]).build().unwrap().task;
    let message = Message {
        exchange: topology::TASKS,
        routing_key: "default.normal".to_owned(),
        body: Encoding::Json.encode_tasks(&OneOrMany::One(task)).unwrap(),
        properties: Properties {
            content_type: Some(Encoding::Json.content_type().to_owned()),
            headers: [(topology::HEADER_TRACEPARENT.to_owned(), context.to_string().as_str().into())].into(),
            ..Properties::default()
        },
    };
    ground.broker().await.publish(message).await.unwrap();
    let spans = collector.poll_trace(context.trace_id, &["queue", "attempt", "kernel", "record"]).await;
    assert_eq!(named(&spans, "attempt").span.parent_span_id, context.span_id.to_be_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_its_collector_runs_jobs_drops_spans_and_stops() {
    let absent = [(ENDPOINT, "http://127.0.0.1:1"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")];
    let ground = Ground::with_environment("traces-absent", &absent).await;
    let worker = ground.worker_with(&METRICS).await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    gpufleet_tests::poll_until("the spans are dropped", async || {
        worker.metrics().await.sum("gpufleet_spans_dropped_total", &[]) >= OF_A_WORKER.len() as f64
    })
    .await;
    assert_eq!(worker.metrics().await.sum("gpufleet_spans_exported_total", &[]), 0.0);
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_collector_sends_no_context() {
    let (ground, fleet) = Ground::with_client("traces-off").await;
    let handle = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
    let queue = topology::task_queue(&"default".parse().unwrap(), topology::Priority::Normal);
    let broker = ground.broker().await;
    let delivery = broker.get(&queue, 1).await.unwrap().pop().unwrap();
    assert!(!delivery.properties.headers.contains_key(topology::HEADER_TRACEPARENT));
    let named = topology::HEADER_TRACEPARENT.as_bytes();
    assert!(!delivery.body.windows(named.len()).any(|window| window == named));
    drop((delivery, handle));
}
