//! A client of the read API. It asks for what the queries of the database answer, and reads the answers into the same types.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use gpufleet::schema::{JobId, JobState};

use gpufleet_ledger::{
    ActionPage, HistoryFilter, JobDetail, JobMatch, Overview, Page, STATISTICS_ROWS_MAX, Statistics, StatisticsFilter,
    WorkerFilter, WorkerRow,
    problem::{Problem, ProblemKind},
};
use reqwest::{Client, StatusCode, Url, redirect};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    complaint::{Complaint, chain},
    environment,
    exit::Exit,
    options::Secret,
};

/// Opening a connection takes milliseconds in a local network and up to two seconds over a long distance.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// The server itself gives up after 30 s.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);
/// In each answer; see `gpufleet_ledger::api`.
const LAG_HEADER: &str = "gpufleet-lag-seconds";

#[derive(Debug)]
pub struct ReadApi {
    client: Client,
    url: Url,
    token: Option<Secret>,
    /// How far the database behind the latest answer was behind its primary.
    lag: Mutex<Option<Duration>>,
}

/// The fields that the command uses.
#[derive(Deserialize)]
struct Workers {
    workers: Vec<WorkerRow>,
}

enum Refusal {
    Problem(Problem),
    Complaint(Complaint),
}

impl ReadApi {
    pub fn new(url: &str, token: Option<&Secret>) -> Result<Self, Complaint> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = parsed.ok_or_else(|| {
            Complaint::usage(format!("the URL of the read API is invalid: {url:?}"))
                .hint(format!("correct --api-url or {}; expected https://HOST:9470", environment::API_URL))
        })?;
        gpufleet_transport::install_tls();
        // A redirect would send the token elsewhere.
        let mut client = Client::builder()
            .connect_timeout(CONNECT_DEADLINE)
            .timeout(ANSWER_DEADLINE)
            .redirect(redirect::Policy::none());
        if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            // A proxy's loopback is another machine's.
            client = client.no_proxy();
        }
        let client = client
            .build()
            .map_err(|error| Complaint::new(Exit::Internal, format!("failed to prepare HTTP: {}", chain(&error))))?;
        Ok(Self { client, url, token: token.cloned(), lag: Mutex::new(None) })
    }

    pub async fn history(&self, filter: &HistoryFilter) -> Result<Page, Complaint> {
        self.get(&["jobs"], &pairs(filter)).await.map_err(|refusal| self.complaint(refusal))
    }

    pub async fn find_job(&self, id: &str) -> Result<JobMatch, Complaint> {
        // These are no names of their own in a URL.
        if matches!(id, "" | "." | "..") {
            return Ok(JobMatch::None);
        }
        match self.get::<JobDetail>(&["jobs", id], &[]).await {
            Ok(detail) => Ok(JobMatch::One(Box::new(detail))),
            Err(Refusal::Problem(problem)) if problem.kind == ProblemKind::UnknownJob => Ok(JobMatch::None),
            Err(Refusal::Problem(problem)) if problem.kind == ProblemKind::AmbiguousJob => {
                Ok(JobMatch::Many(problem.jobs.iter().filter_map(|job| job.parse().ok()).collect()))
            }
            Err(refusal) => Err(self.complaint(refusal)),
        }
    }

    /// The states of those of the jobs that are recorded. Each takes a request.
    pub async fn job_states(&self, ids: &[JobId]) -> Result<HashMap<JobId, JobState>, Complaint> {
        let mut states = HashMap::new();
        for id in ids {
            if let JobMatch::One(detail) = self.find_job(&id.to_string()).await? {
                states.insert(*id, detail.job.state);
            }
        }
        Ok(states)
    }

    pub async fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, Complaint> {
        let WorkerFilter { name, heard_within, limit: _ } = filter;
        let name = name.clone().map(|name| ("name", name));
        let within = heard_within.map(|within| ("heard_within_seconds", within.as_secs().to_string()));
        let query: Vec<_> = name.into_iter().chain(within).collect();
        let workers: Workers = self.get(&["workers"], &query).await.map_err(|refusal| self.complaint(refusal))?;
        Ok(workers.workers)
    }

    pub async fn statistics(&self, filter: &StatisticsFilter) -> Result<Statistics, Complaint> {
        let StatisticsFilter { by, since, pool } = filter;
        let by = by.as_ref().map(|by| ("by", by.to_string()));
        let pool = pool.clone().map(|pool| ("pool", pool));
        let bounds = [("since", since.to_rfc3339()), ("limit", STATISTICS_ROWS_MAX.to_string())];
        let query: Vec<_> = by.into_iter().chain(pool).chain(bounds).collect();
        self.get(&["statistics"], &query).await.map_err(|refusal| self.complaint(refusal))
    }

    pub async fn overview(&self) -> Result<Overview, Complaint> {
        self.get(&["overview"], &[]).await.map_err(|refusal| self.complaint(refusal))
    }

    pub async fn actions(&self, limit: u32) -> Result<ActionPage, Complaint> {
        let limit = [("limit", limit.to_string())];
        self.get(&["actions"], &limit).await.map_err(|refusal| self.complaint(refusal))
    }

    pub fn lag(&self) -> Option<Duration> {
        *self.lag.lock().expect("no panic happens under this lock")
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> Result<T, Refusal> {
        let mut url = self.url.clone();
        url.path_segments_mut().expect("http has a path").pop_if_empty().push("v1").extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(&token.0);
        }
        let unreachable = |error: reqwest::Error| {
            let problem = format!("the read API at {} does not answer: {}", self.url, chain(&error.without_url()));
            let hint =
                format!("check that `gpufleet-ledger serve` runs there; correct --api-url or {}", environment::API_URL);
            Refusal::Complaint(Complaint { may_pass: true, ..Complaint::new(Exit::Ledger, problem).hint(hint) })
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let lag = response.headers().get(LAG_HEADER).and_then(|lag| lag.to_str().ok()?.parse().ok());
        *self.lag.lock().expect("no panic happens under this lock") =
            lag.and_then(|lag| Duration::try_from_secs_f64(lag).ok());
        let body = response.bytes().await.map_err(unreachable)?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map_err(|_| self.no_api(status)),
            _ => Err(serde_json::from_slice(&body).map_or_else(|_| self.no_api(status), Refusal::Problem)),
        }
    }

    fn no_api(&self, status: StatusCode) -> Refusal {
        let problem = format!("{} answered with status {status} and not as a read API", self.url);
        let hint = format!("correct --api-url or {}; or compare the releases", environment::API_URL);
        Refusal::Complaint(Complaint::new(Exit::Ledger, problem).hint(hint))
    }

    fn complaint(&self, refusal: Refusal) -> Complaint {
        let problem = match refusal {
            Refusal::Complaint(complaint) => return complaint,
            Refusal::Problem(problem) => problem,
        };
        let exit = match problem.kind {
            ProblemKind::TablesUnusable => Exit::LedgerTables,
            ProblemKind::BadRequest | ProblemKind::UrlTooLong => Exit::Usage,
            _ => Exit::Ledger,
        };
        let hint = match problem.kind {
            ProblemKind::Unauthorized => {
                format!(
                    "give a token of the server as --api-token or {}; ask its operator for one",
                    environment::API_TOKEN
                )
            }
            _ => problem.next.into_owned(),
        };
        let may_pass = matches!(
            problem.kind,
            ProblemKind::Overloaded
                | ProblemKind::DatabaseUnavailable
                | ProblemKind::TooSlow
                | ProblemKind::StandbyBehind
                | ProblemKind::ApiUnavailable
        );
        let message = format!("the read API at {} refused: {}: {}", self.url, problem.title, problem.detail);
        Complaint { may_pass, ..Complaint::new(exit, message).hint(hint) }
    }
}

fn pairs(filter: &HistoryFilter) -> Vec<(&'static str, String)> {
    let HistoryFilter { states, kernel, pool, user_id, worker, name, environment, since, until, labels, limit, before } =
        filter;
    let one = |name, value: &Option<String>| value.clone().map(|value| (name, value));
    let states = states.iter().map(|state| ("state", state.to_string()));
    let labels = labels.iter().map(|(key, value)| ("label", format!("{key}={value}")));
    let others = [
        one("kernel", kernel),
        one("pool", pool),
        one("user", user_id),
        one("worker", worker),
        one("name", name),
        one("env", environment),
        since.map(|since| ("since", since.to_rfc3339())),
        until.map(|until| ("until", until.to_rfc3339())),
        before.map(|before| ("before", before.to_string())),
        Some(("limit", limit.to_string())),
    ];
    states.chain(labels).chain(others.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_must_be_one_of_http() {
        for url in ["", "postgres://h/d", "localhost:9470", "http://"] {
            assert_eq!(ReadApi::new(url, None).unwrap_err().exit, Exit::Usage, "{url:?}");
        }
        assert!(ReadApi::new("http://127.0.0.1:9470/", None).is_ok());
    }

    #[test]
    fn every_filter_becomes_a_parameter() {
        let filter = HistoryFilter {
            states: vec!["failed".parse().unwrap(), "dead".parse().unwrap()],
            kernel: Some("k&x=y".to_owned()),
            environment: Some("torch".to_owned()),
            labels: vec![("a".to_owned(), "b=c".to_owned())],
            ..HistoryFilter::default()
        };
        let text = |value: &str| value.to_owned();
        assert_eq!(
            pairs(&filter),
            [
                ("state", text("failed")),
                ("state", text("dead")),
                ("label", text("a=b=c")),
                ("kernel", text("k&x=y")),
                ("env", text("torch")),
                ("limit", text("50"))
            ]
        );
    }
}
