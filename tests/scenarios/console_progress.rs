//! The console follows running jobs at the broker while viewers watch them: once for all viewers, and not at all without.

use gpufleet_schema::{JobId, JobState, topology::PROGRESS};
use gpufleet_tests::{
    Ground, HttpService, WAIT, busy,
    kernels::{self, Then, said},
    poll_until,
};
use gpufleet_transport::install_tls;
use reqwest::{Response, Url};
use serde_json::Value;
use tokio::time::timeout;

use crate::confined::{By, Confined};

const TOKEN: &str = "0123456789abcdef-canary";
const VIEWERS: usize = 20;
const LIST: &str = "/v1/jobs?state=running&limit=10";

/// Someone who watches one topic.
struct Viewer {
    stream: Response,
    read: String,
}

impl Viewer {
    /// Watches how far the running jobs of a page are.
    async fn of(console: &HttpService, page: &str) -> Self {
        install_tls();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let topic = [("topic", format!("progress{page}"))];
        let url = Url::parse_with_params(&format!("{}/live", console.url), topic).unwrap();
        Self { stream: client.get(url).send().await.unwrap(), read: String::new() }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let data = event
                    .strip_prefix("event: snapshot\ndata: ")
                    .map(|data| serde_json::from_str::<Value>(data).unwrap());
                self.read = rest.to_owned();
                match data {
                    Some(mut snapshot) => return snapshot["body"].take(),
                    None => continue,
                }
            }
            let chunk = self.stream.chunk().await.unwrap().expect("the stream goes on");
            self.read += std::str::from_utf8(&chunk).unwrap();
        }
    }

    /// Reads on until the page shows this.
    async fn until(&mut self, what: &str, shows: impl Fn(&Value) -> bool) -> Value {
        let reading = async {
            loop {
                let body = self.next().await;
                if shows(&body) {
                    return body;
                }
            }
        };
        timeout(WAIT, reading).await.unwrap_or_else(|_| panic!("not within {WAIT:?}: {what}"))
    }

    async fn until_counted(&mut self, job: JobId) -> Value {
        let job = job.to_string();
        let body =
            self.until("a launch is counted", |body| body["jobs"][&job]["count"]["done"].as_u64() > Some(0)).await;
        body["jobs"][&job].clone()
    }
}

fn page_of(job: JobId) -> String {
    format!("/v1/jobs/{job}")
}

/// The keys with which queues are bound to the exchange of progress.
async fn bound(ground: &Ground) -> Vec<String> {
    let keys = format!(
        "[binary_to_list(Key) || [{{_, <<\"{PROGRESS}\">>}}, {{_, Key}}] <- \
         rabbit_binding:info_all(@, [source_name, routing_key])]."
    );
    let answer = ground.erlang(&keys).await;
    answer.split('"').filter(|part| part.contains('*')).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_of_a_running_job_share_one_binding_which_ends_with_the_last_of_them() {
    let (ground, _worker) = Ground::with_worker("console-progress").await;
    let fleet = ground.client().await;
    let job = fleet.submit(busy::for_seconds(1).repeat(600)).await.unwrap().id();
    ground.poll_job("running", job, |job| job.state == JobState::Running).await;
    let api = ground.serve_ledger(&[("GPUFLEET_API_TOKEN", TOKEN)]).await;
    let console = ground.serve_console(&api, TOKEN).await;
    assert_eq!(bound(&ground).await, [""; 0], "without a viewer there is no binding");

    let mut viewers = Vec::new();
    for _ in 0..VIEWERS {
        viewers.push(Viewer::of(&console, &page_of(job)).await);
    }
    for viewer in &mut viewers {
        let shown = viewer.until_counted(job).await;
        assert_eq!(
            (&shown["unit"], &shown["stage"], &shown["attempt"]),
            (&"launches".into(), &"running".into(), &1.into())
        );
        assert_eq!(shown["count"]["total"], 600);
        assert!(shown["left_ms"].as_u64() > Some(100_000), "{shown}");
    }
    assert_eq!(bound(&ground).await, [format!("default.*.{job}")]);
    let mut list = Viewer::of(&console, LIST).await;
    assert_eq!(list.until_counted(job).await["printed"], Value::Null);
    let mut both = bound(&ground).await;
    both.sort();
    assert_eq!(both, ["default.*.*".to_owned(), format!("default.*.{job}")]);
    drop(viewers);
    poll_until("the list alone is followed", async || bound(&ground).await == ["default.*.*"]).await;
    drop(list);
    poll_until("nothing is followed", async || bound(&ground).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_job_has_the_end_of_what_it_prints() {
    let (ground, _worker) = Ground::with_worker("console-text").await;
    let lines = 2_000;
    let job = ground.client().await.submit(kernels::says(7, lines, Then::Spin)).await.unwrap().id();
    ground.poll_job("running", job, |job| job.state == JobState::Running).await;
    let api = ground.serve_ledger(&[("GPUFLEET_API_TOKEN", TOKEN)]).await;
    let console = ground.serve_console(&api, TOKEN).await;
    let (id, whole) = (job.to_string(), said(7, lines));
    let text = |body: &Value| body["jobs"][&id]["printed"]["text"].as_str().unwrap_or_default().to_owned();
    let mut viewer = Viewer::of(&console, &page_of(job)).await;
    let body =
        viewer.until("all of it was printed", |body| text(body).ends_with(&format!("line {}\n", lines - 1))).await;
    let printed = &body["jobs"][&id]["printed"];
    assert!(whole.ends_with(&text(&body)) && text(&body).len() <= 16 << 10, "{printed}");
    assert_eq!(printed["is_cut"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_that_may_not_follow_a_pool_says_so_and_another_shows_its_jobs() {
    let confined = Confined::start("console-progress-rights", By::Functions).await;
    let anna = confined.fleet("anna").await;
    let job = anna.submit(busy::for_seconds(1).repeat(600).pool("team-a".parse().unwrap())).await.unwrap().id();
    let ground = &confined.ground;
    ground.poll_job("running", job, |job| job.state == JobState::Running).await;
    let api = ground.serve_ledger(&[("GPUFLEET_API_TOKEN", TOKEN)]).await;
    let refused = |body: &Value| body["problem"].as_str().is_some_and(|why| why.contains("gpufleet permissions"));
    // A producer of another pool may see nothing of this one; one of this pool may see a job, and an operator all of them.
    for (user, may_see_job, may_see_pool) in [("bert", false, false), ("anna", true, false), ("olga", true, true)] {
        let console = ground.serve_console_as(&api, TOKEN, &confined.url(user)).await;
        for (page, may_see) in [(page_of(job), may_see_job), (LIST.to_owned(), may_see_pool)] {
            let mut viewer = Viewer::of(&console, &page).await;
            if may_see {
                viewer.until_counted(job).await;
            } else {
                let body = viewer.until("it is refused", refused).await;
                assert_eq!(body["jobs"].as_object().unwrap().len(), 0, "{user} {page}");
            }
        }
    }
    anna.close().await;
    confined.end().await;
}
