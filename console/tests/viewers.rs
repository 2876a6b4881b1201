//! The read API is asked once a second for all viewers together, and not at all without viewers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod service;

use std::time::Duration;

use service::{Options, Service, answer};
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(60);
const VIEWERS: usize = 50;
/// Beats come once a second, as rounds do.
const BEATS: usize = 6;
/// In that time at least one round would have asked.
const SILENT_BEATS: usize = 3;

struct Viewer(reqwest::Response);

impl Viewer {
    async fn of(service: &Service) -> Self {
        Self::watching(service, "topic=/v1/jobs&topic=/v1/workers").await
    }

    async fn watching(service: &Service, topics: &str) -> Self {
        let response = answer(service.get(&format!("/live?{topics}"))).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self(response)
    }

    /// Reads until the stream has brought this text so many times; returns all that it brought.
    async fn until(&mut self, text: &str, times: usize) -> String {
        let read = async {
            let mut all = String::new();
            while all.matches(text).count() < times {
                let chunk = self.0.chunk().await.unwrap().expect("the stream goes on");
                all += std::str::from_utf8(&chunk).unwrap();
            }
            all
        };
        timeout(WAIT, read).await.expect("the events come")
    }
}

/// The requests while one of the viewers receives some beats.
async fn asked_during_beats(service: &Service, viewer: &mut Viewer) -> usize {
    viewer.until("event: beat", 1).await;
    let before = service.asked();
    viewer.until("event: beat", BEATS).await;
    service.asked() - before
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_viewers_cost_the_api_as_much_as_one_and_no_viewer_costs_nothing() {
    let service = Service::start(Options::default()).await;
    assert_eq!(service.asked(), 0);

    let mut first = Viewer::of(&service).await;
    let events = first.until("event: snapshot", 2).await;
    assert!(events.contains("\"topic\":\"/v1/jobs\"") && events.contains("\"body\":{\"workers\":[]"), "{events}");
    let one = asked_during_beats(&service, &mut first).await;

    let mut others = Vec::new();
    for _ in 1..VIEWERS {
        others.push(Viewer::of(&service).await);
    }
    others.last_mut().unwrap().until("event: snapshot", 2).await;
    let fifty = asked_during_beats(&service, &mut first).await;
    // Two topics; a beat may fall just before or after a round.
    assert!(one.abs_diff(2 * BEATS) <= 4, "{one} requests for one viewer in {BEATS} beats");
    assert!(fifty <= one + 2, "{fifty} requests for {VIEWERS} viewers, {one} for one");

    drop(others);
    drop(first);
    // The server notices a closed stream when it next writes to it. From then on nothing is asked while another console's viewer gets
    // some beats.
    let other = Service::start(Options::default()).await;
    let mut clock = Viewer::of(&other).await;
    let silent = async {
        loop {
            let before = service.asked();
            clock.until("event: beat", SILENT_BEATS).await;
            if service.asked() == before {
                break;
            }
        }
    };
    timeout(WAIT, silent).await.expect("the poller falls silent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_never_comes_holds_up_no_other() {
    let service = Service::start(Options::default()).await;
    let mut viewer = Viewer::watching(&service, "topic=/v1/stuck&topic=/v1/jobs").await;
    let asked = asked_during_beats(&service, &mut viewer).await;
    assert!(asked.abs_diff(BEATS) <= 2, "{asked} requests in {BEATS} beats");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_page_costs_the_api_no_further_request() {
    let service = Service::start(Options::default()).await;
    let mut viewer = Viewer::watching(&service, "topic=/v1/jobs&topic=progress/v1/jobs").await;
    let events = viewer.until("event: snapshot", 2).await;
    assert!(events.contains("\"topic\":\"progress/v1/jobs\"") && events.contains("\"jobs\":{}"), "{events}");
    let asked = asked_during_beats(&service, &mut viewer).await;
    assert!(asked.abs_diff(BEATS) <= 2, "{asked} requests in {BEATS} beats");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_not_json_is_a_problem_and_not_an_empty_answer() {
    let service = Service::start(Options::default()).await;
    let mut viewer = Viewer::watching(&service, "topic=/v1/page").await;
    let events = viewer.until("event: snapshot", 1).await;
    assert!(events.contains("gpufleet:api-unavailable") && events.contains("not JSON"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_same_second_share_an_answer() {
    let service = Service::start(Options::default()).await;
    let requests = (0..VIEWERS).map(|_| answer(service.get("/api/v1/jobs?state=queued")));
    for answer in futures::future::join_all(requests).await {
        assert_eq!(answer.status(), 200);
    }
    // On a busy machine they may take longer than a second.
    assert!(service.asked() <= 5, "{}", service.asked());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_the_reason_when_the_api_is_away() {
    use gpufleet_console::{
        broker::Broker,
        feed::{Feed, Topic},
        upstream::Upstream,
    };

    let feed = Feed::new(Upstream::new("http://127.0.0.1:1", None).unwrap(), Broker::absent());
    let snapshot = feed.get(Topic::named("/v1/jobs").unwrap()).await.unwrap();
    let event = snapshot.to_event();
    assert!(event.contains("gpufleet:api-unavailable") && event.contains("\"body\":null"), "{event}");
}
