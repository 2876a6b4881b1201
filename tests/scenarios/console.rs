//! Actions of the console on a real fleet: the broker carries each of them out, and the ledger records exactly what was done.

use gpufleet_schema::{
    JobState,
    topology::{DEAD, DEAD_KEY},
};
use gpufleet_tests::{Ground, HttpService, busy, poll_until};
use gpufleet_transport::{Message, Properties, install_tls};
use serde_json::{Value, json};

use crate::dead_letters::dead_letter_many;

const TOKEN: &str = "0123456789abcdef-canary";

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShownLetter {
    job: String,
    /// The letter's id in the ledger.
    id: String,
    /// The letter's key on the page.
    key: String,
}

/// A console and a viewer.
struct Scene {
    ground: Ground,
    console: HttpService,
    viewer: reqwest::Client,
    _api: HttpService,
}

impl Scene {
    /// Waits until the page shows this many letters.
    async fn dead_letters(&self, count: usize) -> Vec<ShownLetter> {
        let mut shown = Vec::new();
        poll_until("the page shows the letters", async || {
            shown = self.dead().await;
            shown.len() == count
        })
        .await;
        shown
    }

    async fn of(ground: Ground) -> Self {
        let api = ground.serve_ledger(&[("GPUFLEET_API_TOKEN", TOKEN)]).await;
        let console = ground.serve_console(&api, TOKEN).await;
        install_tls();
        let viewer = reqwest::Client::builder().no_proxy().build().unwrap();
        let scene = Self { ground, console, viewer, _api: api };
        poll_until("the console has connected to the broker", async || {
            let asked = scene.viewer.get(format!("{}/api/dead", scene.console.url)).send().await.unwrap();
            asked.status().as_u16() != 503
        })
        .await;
        scene
    }

    /// Sends a request as a page of the console does.
    async fn act(&self, path: &str, body: Value) -> Value {
        let request = self.viewer.post(format!("{}{path}", self.console.url));
        let request = request.header("origin", &self.console.url).header("sec-fetch-site", "same-origin");
        answer(request.header("content-type", "application/json").body(body.to_string())).await
    }

    /// Returns the letters that the page shows.
    async fn dead(&self) -> Vec<ShownLetter> {
        let list = answer(self.viewer.get(format!("{}/api/dead", self.console.url))).await;
        // A letter may have no jobs.
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let letters = list["letters"].as_array().unwrap().iter();
        let letter = |letter: &Value| ShownLetter {
            job: text(&letter["jobs"][0]),
            id: text(&letter["id"]),
            key: text(&letter["key"]),
        };
        letters.map(letter).collect()
    }

    /// Waits until the ledger has this many actions. Returns each with its target, sorted.
    async fn actions(&self, count: usize) -> Vec<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        let mut found = Vec::new();
        poll_until("the actions are recorded", async || {
            let ended = self.ground.gpufleet(folder.path(), &["actions", "-o", "json"]).await.ok();
            let rows: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
            let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
            found = rows.iter().map(|row| (text(row, "action"), text(row, "target"))).collect();
            assert!(rows.iter().all(|row| row["who"] == "local" && row["from"] == "127.0.0.1"), "{rows:?}");
            found.len() >= count
        })
        .await;
        found.sort();
        found
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Value {
    let answer = request.send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_and_another_discarded_and_only_these_are_recorded() {
    let (ground, _worker) = Ground::with_worker("console-dead").await;
    let jobs = dead_letter_many(&ground.broker().await, 3).await;
    let scene = Scene::of(ground).await;
    let [replay, discard, rest] = scene.dead_letters(3).await.try_into().unwrap();
    assert_eq!([&replay.job, &discard.job, &rest.job].map(String::as_str), *jobs);

    let replayed = scene.act("/actions/dead/replay", json!({ "letters": [&replay.key, "unknown"] })).await;
    assert_eq!((&replayed["done"], replayed["jobs"].as_array().unwrap().len()), (&json!(1), 1), "{replayed}");
    let again = replayed["jobs"][0].as_str().unwrap();
    scene.ground.final_job(again.parse().unwrap()).await;
    let discarded = scene.act("/actions/dead/discard", json!({ "letters": [&discard.key] })).await;
    assert_eq!(discarded["done"], 1, "{discarded}");
    assert_eq!(scene.dead().await, std::slice::from_ref(&rest));

    let done = [("discard".to_owned(), discard.id), ("replay".to_owned(), replay.id)];
    assert_eq!(scene.actions(2).await, done);
    // Events of one program are recorded in order. So if the action on the unknown letter were recorded, it would be among these.
    scene.act("/actions/dead/discard", json!({ "letters": [rest.key] })).await;
    assert_eq!(scene.actions(3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_letters_with_one_id_only_the_chosen_one_is_discarded() {
    let ground = Ground::shared("console-same-id").await;
    let broker = ground.broker().await;
    for body in ["no task", "not a task either"] {
        let properties = Properties { message_id: Some("twice".to_owned()), ..Properties::default() };
        let (body, routing_key) = (body.as_bytes().to_vec(), DEAD_KEY.to_owned());
        broker.publish(Message { exchange: DEAD, routing_key, body, properties }).await.unwrap();
    }
    let scene = Scene::of(ground).await;
    let [gone, stays] = scene.dead_letters(2).await.try_into().unwrap();
    assert_eq!((gone.id.as_str(), stays.id.as_str()), ("twice", "twice"));
    let discarded = scene.act("/actions/dead/discard", json!({ "letters": [&gone.key] })).await;
    assert_eq!(discarded["done"], 1, "{discarded}");
    assert_eq!(scene.dead().await, [stays]);
    assert_eq!(scene.actions(1).await, [("discard".to_owned(), "twice".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_is_cancelled_and_the_ledger_says_by_whom() {
    let (ground, _worker) = Ground::with_worker("console-cancel").await;
    let handle = ground.client().await.submit(busy::for_millis(600_000)).await.unwrap();
    let id = handle.id();
    ground.poll_job("running", id, |job| job.state == JobState::Running).await;
    let scene = Scene::of(ground).await;
    scene.act("/actions/cancel", json!({ "jobs": [id.to_string()] })).await;
    let job = scene.ground.final_job(id).await;
    assert_eq!(job.job.state, JobState::Cancelled);
    assert_eq!(scene.actions(1).await, [("cancel".to_owned(), id.to_string())]);
}
