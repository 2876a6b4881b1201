//! An OpenTelemetry collector for tests: it speaks OTLP over HTTP, decodes the protobuf messages and keeps the spans.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::poll_until;

/// The collector. It listens until the test ends.
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    spans: Arc<Mutex<Vec<CollectedSpan>>>,
}

/// A span and the process that exported it.
#[derive(Debug, Clone)]
pub struct CollectedSpan {
    pub service: String,
    pub span: Span,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&spans);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let request = receive(stream).await;
                kept.lock().unwrap().extend(spans_of(request));
            }
        });
        Self { endpoint, spans }
    }

    /// Returns the value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the spans of a trace so far, sorted by their begin.
    pub fn trace(&self, trace_id: u128) -> Vec<CollectedSpan> {
        let of_trace = |span: &&CollectedSpan| span.span.trace_id == trace_id.to_be_bytes();
        let mut spans: Vec<_> = self.spans.lock().unwrap().iter().filter(of_trace).cloned().collect();
        spans.sort_by_key(|span| span.span.start_time_unix_nano);
        spans
    }

    /// Waits until a trace has a span of each of these names.
    pub async fn poll_trace(&self, trace_id: u128, names: &[&str]) -> Vec<CollectedSpan> {
        let has = |name: &&str| self.trace(trace_id).iter().any(|span| span.span.name == *name);
        poll_until("the spans are exported", async || names.iter().all(&has)).await;
        self.trace(trace_id)
    }
}

impl CollectedSpan {
    pub fn is_child_of(&self, parent: &Self) -> bool {
        self.span.trace_id == parent.span.trace_id && self.span.parent_span_id == parent.span.span_id
    }

    /// Returns an attribute that is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        text(&self.span.attributes, key)
    }
}

/// Reads one request and answers it, after which the connection ends.
async fn receive(mut stream: TcpStream) -> ExportTraceServiceRequest {
    let mut received = Vec::new();
    let head_bytes = loop {
        stream.read_buf(&mut received).await.unwrap();
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8(received[..head_bytes].to_vec()).unwrap().to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
    let (_, length) = head.split_once("\r\ncontent-length: ").unwrap_or_else(|| panic!("{head}"));
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    while received.len() < head_bytes + length {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0, "the request was cut off");
    }
    let request = ExportTraceServiceRequest::decode(&received[head_bytes..]).unwrap();
    // An empty body means that all spans were accepted.
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(answer.as_bytes()).await.unwrap();
    request
}

fn spans_of(request: ExportTraceServiceRequest) -> Vec<CollectedSpan> {
    let of_resource = request.resource_spans.into_iter().flat_map(|resource| {
        let attributes = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
        let service = text(&attributes, "service.name").expect("every process has a service name").to_owned();
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(move |span| CollectedSpan { service: service.clone(), span })
    });
    of_resource.collect()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}
