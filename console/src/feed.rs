//! One reader of the read API and the broker for all viewers.
//!
//! A topic is a page of the read API, the state of the broker, or how far the running jobs of a page are. Viewers of the same topic share its latest snapshot. While a topic has
//! viewers it is asked once in its interval; without viewers nothing is asked. A single request is answered from a fresh snapshot, or starts
//! one refresh that all concurrent requests wait for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use gpufleet_service::problem::{Problem, ProblemKind};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{broker::Broker, progress::Follows, snapshot::Snapshot, upstream::Upstream};

/// How often a watched topic is asked.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// How often watched statistics, samples and explanations are asked. They change slowly, and cost the database more.
pub const SLOW_INTERVAL: Duration = Duration::from_secs(5);
/// A snapshot that is younger than its interval by this answers a single request, so that viewers in step with it get each one.
const MARGIN: Duration = Duration::from_millis(100);
/// Pages of the read API that are asked slowly, by the beginning of their path.
const SLOW: [&str; 2] = ["/v1/statistics", "/v1/samples"];
/// The same, by the end of their path: explanations of one job.
const SLOW_OF_A_JOB: [&str; 2] = ["/why", "/report"];
/// A viewer's page has a handful of topics. Above this, further topics are refused, so that viewers can't exhaust memory or the API.
const TOPICS_MAX: usize = 512;
/// Requests to the API at a time. It serves 64 callers.
const ASKED_AT_ONCE: usize = 8;
/// Snapshots without viewers are kept for this long, for viewers who come back.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Before the page of jobs in the name of a topic.
const PROGRESS: &str = "progress";
/// Enough for every filter with long values.
const PATH_BYTES_MAX: usize = 4 << 10;

/// The subject of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A path of the read API with its query.
    Page(String),
    /// How far the running jobs of a page are: `progress` and the path of the page, which lists jobs or shows one.
    Progress(String),
    /// Depths of queues, and whether the broker answers.
    Broker,
}

/// The latest snapshot of a topic; none before the first refresh has ended.
pub type Latest = watch::Receiver<Option<Arc<Snapshot>>>;

#[derive(Debug)]
pub struct Feed {
    upstream: Upstream,
    broker: Broker,
    follows: Follows,
    subjects: Mutex<HashMap<Topic, Arc<Subject>>>,
    /// Told when a topic gets a viewer.
    viewed: Notify,
    turns: Semaphore,
}

#[derive(Debug)]
struct Subject {
    topic: Topic,
    latest: watch::Sender<Option<Arc<Snapshot>>>,
    /// The latest refresh. A task holds the lock while it asks, so that one task asks at a time.
    last_refresh: AsyncMutex<Option<Refresh>>,
    used_at: Mutex<Instant>,
}

/// When a refresh began and ended.
#[derive(Debug, Clone, Copy)]
struct Refresh {
    began: Instant,
    ended: Instant,
}

impl Topic {
    /// The topic of this name: `broker`, a path of the read API, or `progress` and the path of a page of jobs.
    pub fn named(name: &str) -> Result<Self, Problem> {
        match name.strip_prefix(PROGRESS) {
            _ if name == "broker" => Ok(Self::Broker),
            None if page_path(name).is_some() => Ok(Self::Page(name.to_owned())),
            Some(page) if page_path(page).is_some_and(|path| has_jobs(&path)) => Ok(Self::Progress(name.to_owned())),
            _ => Err(no_topic()),
        }
    }

    fn interval(&self) -> Duration {
        let (name, of_job) = (self.name(), self.name().starts_with("/v1/jobs/"));
        let is_slow = SLOW.iter().any(|page| name.starts_with(page))
            || of_job && SLOW_OF_A_JOB.iter().any(|page| name.ends_with(page));
        if is_slow { SLOW_INTERVAL } else { INTERVAL }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Page(name) | Self::Progress(name) => name,
            Self::Broker => "broker",
        }
    }
}

impl Feed {
    pub fn new(upstream: Upstream, broker: Broker) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            broker,
            follows: Follows::default(),
            subjects: Mutex::default(),
            viewed: Notify::new(),
            turns: Semaphore::new(ASKED_AT_ONCE),
        })
    }

    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Lets a viewer see the topic until the receiver is dropped.
    pub fn watch(&self, topic: Topic) -> Result<Latest, Problem> {
        let latest = self.subject(topic)?.latest.subscribe();
        self.viewed.notify_one();
        Ok(latest)
    }

    /// A fresh snapshot.
    pub async fn get(&self, topic: Topic) -> Result<Arc<Snapshot>, Problem> {
        let subject = self.subject(topic)?;
        self.refresh(&subject).await;
        let latest = subject.latest.borrow().clone();
        Ok(latest.expect("a refresh ended, with an answer or a problem"))
    }

    /// Asks about the topics that have viewers, until stopped. A slow topic holds up no other.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let round = Instant::now();
            let (watched, kept) = self.watched();
            let is_watched = !watched.is_empty();
            for subject in watched {
                let feed = Arc::clone(&self);
                tokio::spawn(async move { feed.refresh_if_idle(&subject).await });
            }
            // Without viewers only old snapshots go, and without those nothing is to be done.
            let next = match (is_watched, kept) {
                (true, _) => Some(round + INTERVAL),
                (false, 0) => None,
                (false, _) => Some(round + KEPT_FOR),
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(next.unwrap_or(round)), if next.is_some() => {}
                // A new viewer waits for no round. Topics that were just asked are still fresh.
                () = self.viewed.notified() => {}
            }
        }
    }

    fn subject(&self, topic: Topic) -> Result<Arc<Subject>, Problem> {
        let mut subjects = self.subjects.lock().expect("no panic happens under this lock");
        if let Some(subject) = subjects.get(&topic) {
            subject.touch();
            return Ok(Arc::clone(subject));
        }
        subjects.retain(|_, subject| subject.is_watched() || !subject.is_old());
        if subjects.len() >= TOPICS_MAX {
            subjects.retain(|_, subject| subject.is_watched());
        }
        if subjects.len() >= TOPICS_MAX {
            return Err(Problem::new(
                ProblemKind::Overloaded,
                "The console is busy",
                format!("its viewers look at {TOPICS_MAX} different pages already"),
                "close some pages, or try again later",
            ));
        }
        let subject = Arc::new(Subject {
            topic: topic.clone(),
            latest: watch::Sender::new(None),
            last_refresh: AsyncMutex::new(None),
            used_at: Mutex::new(Instant::now()),
        });
        subjects.insert(topic, Arc::clone(&subject));
        Ok(subject)
    }

    /// The topics with viewers, and how many topics there are.
    fn watched(&self) -> (Vec<Arc<Subject>>, usize) {
        let mut subjects = self.subjects.lock().expect("no panic happens under this lock");
        subjects.retain(|_, subject| subject.is_watched() || !subject.is_old());
        let watched: Vec<_> = subjects.values().filter(|subject| subject.is_watched()).cloned().collect();
        // Their snapshots are kept for a while after the last viewer has left.
        watched.iter().for_each(|subject| subject.touch());
        (watched, subjects.len())
    }

    /// Asks, unless the refresh of another task is recent. A refresh that ends while this one waits for it is.
    async fn refresh(&self, subject: &Subject) {
        let arrived = Instant::now();
        let mut latest = subject.last_refresh.lock().await;
        if latest.is_some_and(|latest| latest.ended >= arrived || subject.is_fresh(latest)) {
            return;
        }
        *latest = Some(self.ask(subject).await);
    }

    /// Asks, unless another task asks now or the latest refresh is recent.
    async fn refresh_if_idle(&self, subject: &Subject) {
        let Ok(mut latest) = subject.last_refresh.try_lock() else { return };
        if !latest.is_some_and(|latest| subject.is_fresh(latest)) {
            *latest = Some(self.ask(subject).await);
        }
    }

    async fn ask(&self, subject: &Subject) -> Refresh {
        let began = Instant::now();
        let answer = match &subject.topic {
            Topic::Page(path) => {
                let _turn = self.turns.acquire().await;
                self.upstream.get_json(path).await
            }
            Topic::Progress(name) => self.progress_of(&name[PROGRESS.len()..]).await,
            Topic::Broker => Ok(Bytes::from(self.broker_state().await)),
        };
        let earlier = subject.latest.borrow().clone();
        let snapshot = Snapshot::new(subject.topic.name().to_owned(), answer, earlier.as_deref());
        // Viewers are told of a change at once, and each time that the snapshot grows older or recovers.
        let is_same = earlier.is_some_and(|earlier| earlier.shows_the_same_as(&snapshot));
        subject.latest.send_if_modified(|latest| {
            *latest = Some(Arc::new(snapshot));
            !is_same
        });
        Refresh { began, ended: Instant::now() }
    }

    /// The pools that workers serve decide which queues are asked about.
    async fn broker_state(&self) -> String {
        let workers = Topic::Page("/v1/workers".to_owned());
        let pools = match Box::pin(self.get(workers)).await {
            Ok(snapshot) => snapshot.body.as_deref().map(crate::broker::pools_of).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let state = self.broker.state(&pools).await;
        serde_json::to_string(&state).expect("all of its fields are texts and numbers")
    }

    /// The page's running jobs decide what is followed.
    async fn progress_of(&self, page: &str) -> Result<Bytes, Problem> {
        let page = Box::pin(self.get(Topic::Page(page.to_owned()))).await?;
        let progress = self.follows.of_page(page.body.as_deref().unwrap_or_default(), &self.broker);
        Ok(Bytes::from(serde_json::to_string(&progress).expect("all of its fields are texts and numbers")))
    }
}

impl Subject {
    fn is_watched(&self) -> bool {
        self.latest.receiver_count() > 0
    }

    /// Counted from its beginning, so that a topic that takes some time to answer is asked as often as others.
    fn is_fresh(&self, refresh: Refresh) -> bool {
        refresh.began.elapsed() < self.topic.interval() - MARGIN
    }

    fn touch(&self) {
        *self.used_at.lock().expect("no panic happens under this lock") = Instant::now();
    }

    fn is_old(&self) -> bool {
        self.used_at.lock().expect("no panic happens under this lock").elapsed() > KEPT_FOR
    }
}

/// The path without its query, if it is one of the read API.
fn page_path(name: &str) -> Option<String> {
    let is_plain = name.starts_with("/v1/")
        && name.len() <= PATH_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_graphic())
        && !name.contains(['#', '\\']);
    // An encoded dot is one too, once the URL is parsed.
    let url = is_plain.then(|| reqwest::Url::parse(&format!("http://api{name}")).ok()).flatten()?;
    Some(url.path().to_owned()).filter(|path| path.starts_with("/v1/"))
}

/// Whether a page lists jobs, or shows one.
fn has_jobs(path: &str) -> bool {
    let rest = path.strip_prefix("/v1/jobs");
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('/').is_some_and(|id| !id.contains('/')))
}

fn no_topic() -> Problem {
    Problem::new(
        ProblemKind::NotFound,
        "There is no such page",
        "the console passes on the paths of the read API below /v1/",
        "see the API's /openapi.json for its pages",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_pages_of_the_read_api_and_the_broker() {
        for name in [
            "/v1/jobs",
            "/v1/jobs?label=a%3Db&limit=50",
            "/v1/jobs/0190",
            "broker",
            "progress/v1/jobs?state=running&limit=8",
            "progress/v1/jobs/0190",
        ] {
            assert_eq!(Topic::named(name).unwrap().name(), name);
        }
        let long = format!("/v1/{}", "a".repeat(PATH_BYTES_MAX));
        for name in [
            "",
            "/",
            "/healthz",
            "/v1/../metrics",
            "/v1/%2e%2e/metrics",
            "/v1/.%2E/metrics",
            "/v1/a b",
            "/v1/a#b",
            "http://evil/v1/",
            "//evil/v1/",
            "progress",
            "progress/v1/workers",
            "progress/v1/jobs/0190/why",
            "progress/v1/jobs/../workers",
            "progressbroker",
            &long,
        ] {
            assert!(Topic::named(name).is_err(), "{name}");
        }
    }
}
