//! Reads a worker's metrics with a strict parser of OpenMetrics' text form.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{TestWorker, poll::poll_some, poll_until};

/// The arguments to serve metrics on a free port.
pub const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

/// All samples of one scrape.
#[derive(Debug, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
    /// Type and name of each family.
    families: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl TestWorker {
    /// Scrapes the worker.
    pub async fn metrics(&self) -> Metrics {
        let address = poll_some("the address of the metrics", async || self.metrics_address()).await;
        let (head, body) = get(&address, "/metrics").await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
        Metrics::parse(&body)
    }

    /// Waits until the sum of a metric over all series with these labels has this value.
    pub async fn poll_metric(&self, what: &str, name: &str, labels: &[(&str, &str)], value: f64) {
        poll_until(what, async || self.metrics().await.sum(name, labels) == value).await;
    }

    fn metrics_address(&self) -> Option<String> {
        let log = fs::read_to_string(self.process().log()).ok()?;
        let line = log.lines().find(|line| line.contains("serving metrics"))?;
        Some(line.split_once("address=")?.1.trim().to_owned())
    }
}

impl Metrics {
    /// The sum over all series that have at least these labels.
    ///
    /// # Panics
    /// If there is no such series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has_all = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|is| is == value))
        };
        let mut found = self.samples.iter().filter(has_all).peekable();
        assert!(found.peek().is_some(), "no {name} with {labels:?} in {self:#?}");
        found.map(|sample| sample.value).sum()
    }

    /// The names of all samples.
    pub fn names(&self) -> BTreeSet<&str> {
        self.samples.iter().map(|sample| sample.name.as_str()).collect()
    }

    fn parse(text: &str) -> Self {
        let text = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
        let mut metrics = Self::default();
        let mut helped = BTreeSet::new();
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let [kind, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
                match kind {
                    "HELP" => assert!(rest.ends_with('.') && helped.insert(name.to_owned()), "{line}"),
                    "TYPE" => assert!(metrics.families.insert(name.to_owned(), rest.to_owned()).is_none(), "{line}"),
                    "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                    _ => panic!("{line}"),
                }
            } else {
                metrics.samples.push(metrics.sample(line));
            }
        }
        assert_eq!(helped, metrics.families.keys().cloned().collect(), "each family has a help and a type");
        metrics
    }

    fn sample(&self, line: &str) -> Sample {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        let (name, labels) = match series.split_once('{') {
            None => (series, BTreeMap::new()),
            Some((name, labels)) => (name, labels_of(labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}")))),
        };
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(is_name && name.starts_with("gpufleet_"), "{line}");
        let (family, kind) = match name.strip_suffix("_total") {
            Some(family) => (family, "counter"),
            None => (name, "gauge"),
        };
        assert_eq!(self.families.get(family).map(String::as_str), Some(kind), "{line}");
        Sample { name: name.to_owned(), labels, value }
    }
}

/// Parses labels. No value contains a quote or a comma.
fn labels_of(text: &str) -> BTreeMap<String, String> {
    let pairs =
        text.split("\",").map(|pair| pair.trim_end_matches('"').split_once("=\"").unwrap_or_else(|| panic!("{text}")));
    pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).collect()
}

/// The head and body of the response.
async fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_owned(), body.to_owned())
}
