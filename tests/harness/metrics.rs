//! Reads the metrics of a worker or of the recorder. The parser accepts only strict OpenMetrics text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use gpufleet_local::Process;

use crate::{Ground, TestWorker, poll::poll_some, poll_until};

/// The arguments that serve metrics on a free port.
pub const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

/// All samples of one scrape.
#[derive(Debug, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
    /// The type of each metric family by its name.
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
        Metrics::of(&self.process()).await
    }

    /// Waits until the sum of a metric over all series with these labels has this value.
    pub async fn poll_metric(&self, what: &str, name: &str, labels: &[(&str, &str)], value: f64) {
        poll_until(what, async || self.metrics().await.sum(name, labels) == value).await;
    }
}

impl Ground {
    /// Scrapes the recorder, which must serve metrics.
    pub async fn recorder_metrics(&self) -> Metrics {
        Metrics::of(&self.recorder()).await
    }

    /// Waits until the recorder's metrics meet a condition.
    pub async fn poll_recorder(&self, what: &str, met: impl Fn(&Metrics) -> bool) {
        poll_until(what, async || met(&self.recorder_metrics().await)).await;
    }

    fn recorder(&self) -> Process {
        self.fleet().ledger().expect("the ground has a recorder")
    }
}

async fn address_of(process: &Process) -> String {
    let logged = || {
        let log = fs::read_to_string(process.log()).ok()?;
        let line = log.lines().rfind(|line| line.contains("serving metrics"))?;
        Some(line.split_once("address=")?.1.trim().to_owned())
    };
    poll_some("the address of the metrics", async || logged()).await
}

impl Metrics {
    async fn of(process: &Process) -> Self {
        let (head, body) = get(&address_of(process).await, "/metrics").await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
        Self::parse(&body)
    }

    /// Returns the sum over all series that have at least these labels.
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

    /// Returns the names of all metrics as the documentation lists them: those of the samples, but a single name for
    /// each histogram.
    pub fn names(&self) -> BTreeSet<&str> {
        self.samples.iter().map(|sample| self.histogram_of(&sample.name).unwrap_or(&sample.name)).collect()
    }

    /// Returns the histogram that a sample belongs to, if there is one.
    fn histogram_of<'a>(&self, sample: &'a str) -> Option<&'a str> {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| sample.strip_suffix(part))?;
        (self.families.get(family).map(String::as_str) == Some("histogram")).then_some(family)
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
        // An exemplar follows the value of a bucket.
        let (line, exemplar) = line.split_once(" # ").map_or((line, None), |(line, it)| (line, Some(it)));
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        let (name, labels) = match series.split_once('{') {
            None => (series, BTreeMap::new()),
            Some((name, labels)) => (name, labels_of(labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}")))),
        };
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(is_name && name.starts_with("gpufleet_"), "{line}");
        assert!(exemplar.is_none_or(|it| name.ends_with("_bucket") && it.starts_with("{job_id=\"")), "{exemplar:?}");
        if self.histogram_of(name).is_some() {
            return Sample { name: name.to_owned(), labels, value };
        }
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

/// Sends a request, and returns the head and body of the response.
async fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_owned(), body.to_owned())
}
