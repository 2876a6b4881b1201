//! The read API, as the console asks it. Answers stay the text that they are.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use bytes::{Bytes, BytesMut};
use gpufleet_service::problem::{Problem, ProblemKind};
use reqwest::{Client, Url, redirect};
use serde::de::IgnoredAny;

/// Opening a connection takes milliseconds in a local network.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);
/// The API itself gives up after 30 s. A viewer should see sooner that it does not answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// A page of 1000 jobs has about a megabyte; a kept output that the ledger holds has less.
const ANSWER_BYTES_MAX: usize = 32 << 20;

#[derive(Debug)]
pub struct Upstream {
    client: Client,
    url: Url,
    token: Option<String>,
    /// The number of requests since the start.
    asked: AtomicU64,
}

impl Upstream {
    pub fn new(url: &str, token: Option<&str>) -> anyhow::Result<Self> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = parsed.ok_or_else(|| {
            anyhow!(
                "ask the read API: its URL is invalid; correct --api or GPUFLEET_API_URL; expected https://HOST:9470"
            )
        })?;
        gpufleet_transport::install_tls();
        // A redirect would send the token elsewhere.
        let mut client = Client::builder()
            .connect_timeout(CONNECT_DEADLINE)
            .timeout(ANSWER_DEADLINE)
            .redirect(redirect::Policy::none());
        if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            // An HTTP proxy would take loopback for itself.
            client = client.no_proxy();
        }
        let client = client.build().context("prepare HTTP")?;
        Ok(Self { client, url, token: token.map(str::to_owned), asked: AtomicU64::new(0) })
    }

    /// The number of requests since the start.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The answer to a path with its query, which begins with `/v1/`.
    pub async fn get(&self, path_and_query: &str) -> Result<Bytes, Problem> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let base = self.url.as_str().trim_end_matches('/');
        let mut request = self.client.get(format!("{base}{path_and_query}"));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut response = request.send().await.map_err(|error| unavailable(&error))?;
        let status = response.status();
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unavailable(&error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(unusable(&format!("its answer has more than {} MiB", ANSWER_BYTES_MAX >> 20)));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(body.freeze());
        }
        match serde_json::from_slice::<Problem>(&body) {
            // The viewer has no token for the API; the console has.
            Ok(problem) if problem.kind == ProblemKind::Unauthorized => {
                Err(unusable("it refused the console's token; the operator should check GPUFLEET_API_TOKEN"))
            }
            Ok(problem) => Err(problem),
            Err(_) => Err(unusable(&format!("it answered with status {status} and no problem JSON"))),
        }
    }

    /// The same, if it is JSON. A sign-in page in front of the API, for example, is not.
    pub async fn get_json(&self, path_and_query: &str) -> Result<Bytes, Problem> {
        let body = self.get(path_and_query).await?;
        match serde_json::from_slice::<IgnoredAny>(&body) {
            Ok(_) => Ok(body),
            Err(_) => Err(unusable("its answer is not JSON; the operator should check --api")),
        }
    }
}

fn unavailable(error: &reqwest::Error) -> Problem {
    let why = match error {
        error if error.is_timeout() => "it did not answer in time",
        error if error.is_connect() => "no connection could be opened",
        _ => "the connection broke",
    };
    unusable(why)
}

fn unusable(why: &str) -> Problem {
    Problem::new(
        ProblemKind::ApiUnavailable,
        "The read API is not available",
        why.to_owned(),
        "the console tries again each second; if it lasts, check `gpufleet-ledger serve` and its log",
    )
}
