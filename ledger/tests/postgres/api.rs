//! The read API on a real Postgres: its answers are those of the queries, it only reads, and hostile requests get errors that reveal
//! nothing about the database.

use gpufleet_ledger::{
    HistoryFilter, JobDetail, JobMatch, Overview, Page, Pool, Report, StatisticsFilter, WorkerFilter, api::Tokens,
    problem::Problem,
};
use gpufleet_schema::{AttemptState, JobState};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::{
    database::Database,
    histories::{finished, heartbeat, id, info, worker},
    http::{Response, Served},
    queries::{AT, fill},
};

const TOKEN: &str = "0123456789abcdef-canary";

#[tokio::test]
async fn the_pages_of_the_api_are_those_of_the_queries() {
    let (database, mut store, ledger) = Database::opened().await;
    fill(&mut store, 120).await;
    let served = Served::open(database.url()).await;
    let expected = async |filter: HistoryFilter| serde_json::to_value(ledger.history(&filter).await.unwrap()).unwrap();
    let filter = HistoryFilter { limit: 7, ..HistoryFilter::default() };
    for (query, filter) in [
        ("limit=7", filter.clone()),
        (
            "limit=7&state=failed&state=queued",
            HistoryFilter { states: vec![JobState::Failed, JobState::Queued], ..filter.clone() },
        ),
        (
            "kernel=sobel&pool=team-a&limit=7",
            HistoryFilter { kernel: Some("sobel".into()), pool: Some("team-a".into()), ..filter.clone() },
        ),
        (
            "limit=7&label=run%3D7&since=2025-01-01T00:00:00Z",
            HistoryFilter {
                labels: vec![("run".into(), "7".into())],
                since: Some("2025-01-01T00:00:00Z".parse().unwrap()),
                ..filter.clone()
            },
        ),
        (
            "limit=7&since=2025-11-16T00:00:00Z",
            HistoryFilter { since: Some("2025-11-16T00:00:00Z".parse().unwrap()), ..filter.clone() },
        ),
        ("kernel=absent", HistoryFilter { kernel: Some("absent".into()), ..filter.clone() }),
    ] {
        let response = served.get(&format!("/v1/jobs?{query}")).await;
        assert_eq!((response.status, response.json()), (200, expected(filter).await), "{query}");
        assert_eq!(response.header("gpufleet-lag-seconds"), Some("0.000"));
    }
    let (mut path, mut jobs) = ("/v1/jobs?limit=50".to_owned(), Vec::new());
    loop {
        // The JSON can be read into the type that the server serializes.
        let page: Page = serde_json::from_value(served.get(&path).await.json()).unwrap();
        jobs.extend(page.jobs);
        let Some(next) = page.next else { break };
        path = format!("/v1/jobs?limit=50&before={next}");
    }
    let all = ledger.history(&HistoryFilter { limit: 1000, ..HistoryFilter::default() }).await.unwrap();
    assert_eq!(jobs, all.jobs);
}

#[tokio::test]
async fn a_job_is_served_with_its_attempts_and_its_output() {
    let (database, mut store, ledger) = Database::opened().await;
    let ids = fill(&mut store, 9).await;
    let served = Served::open(database.url()).await;
    let JobMatch::One(expected) = ledger.find_job(&ids[4].to_string()).await.unwrap() else { panic!() };
    let served_job = served.get(&format!("/v1/jobs/{}", ids[4])).await;
    assert_eq!(serde_json::from_value::<JobDetail>(served_job.json()).unwrap(), *expected);

    let logs = served.get(&format!("/v1/jobs/{}/logs", ids[4])).await.json();
    assert_eq!(
        logs,
        json!({ "job_id": ids[4], "attempt": 1, "state": "succeeded", "printf_output": expected.attempts[0].printf_output })
    );
    let queued = served.get(&format!("/v1/jobs/{}/logs", ids[0])).await.json();
    assert_eq!(queued, json!({ "job_id": ids[0], "attempt": null, "state": null, "printf_output": null }));
    assert_eq!(served.get(&format!("/v1/jobs/{}/logs?attempt=9", ids[4])).await.problem(), "unknown-attempt");

    for unknown in ["ffff", "no%20id", "%00", "..%2f..%2fetc"] {
        assert_eq!(served.get(&format!("/v1/jobs/{unknown}")).await.problem(), "unknown-job", "{unknown}");
    }
    let ambiguous = served.get(&format!("/v1/jobs/{}", &ids[0].to_string()[..4])).await;
    assert_eq!((ambiguous.status, ambiguous.problem().as_str()), (409, "ambiguous-job"));
    let problem: Problem = serde_json::from_value(ambiguous.json()).unwrap();
    assert_eq!(problem.jobs.len(), JobMatch::SHOWN_MAX as usize);
}

#[tokio::test]
async fn the_fleet_is_served_as_the_queries_answer() {
    let (database, mut store, ledger) = Database::opened().await;
    let ids = fill(&mut store, 60).await;
    assert_eq!(store.record(&[heartbeat(1, 0, false)]).await.unwrap(), []);
    let served = Served::open(database.url()).await;
    let old = "2025-01-01T00:00:00Z";
    let filter = |by: Option<&str>| StatisticsFilter {
        by: by.map(|by| by.parse().unwrap()),
        since: old.parse().unwrap(),
        pool: None,
    };
    for by in ["kernel", "pool", "user", "worker", "device", "label:run"] {
        let statistics = ledger.statistics(&filter(Some(by))).await.unwrap();
        let answer = served.get(&format!("/v1/statistics?by={by}&since={old}")).await;
        assert_eq!((answer.status, answer.json()), (200, serde_json::to_value(&statistics).unwrap()), "{by}");
    }
    let first = served.get(&format!("/v1/statistics?by=kernel&since={old}&limit=1")).await.json();
    let kernels = ledger.statistics(&filter(Some("kernel"))).await.unwrap().rows.len() as u64;
    assert_eq!((first["rows"].as_array().unwrap().len(), &first["rows_left_out"]), (1, &json!(kernels - 1)));
    let series = ledger.series(old.parse().unwrap(), None).await.unwrap();
    assert_eq!(
        served.get(&format!("/v1/statistics/series?since={old}")).await.json(),
        serde_json::to_value(&series).unwrap()
    );
    let neighbours = served.get(&format!("/v1/jobs/{}/neighbours", ids[1])).await.json();
    let neighbours = neighbours["neighbours"].as_array().unwrap().iter().map(|job| &job["job_id"]);
    assert!(neighbours.eq([11, 21, 31, 41, 51].map(|index: usize| json!(ids[index])).iter()), "they run in its pool");
    let workers = ledger.workers(&WorkerFilter::default()).await.unwrap();
    let pools = Pool::all(&workers, &ledger.statistics(&filter(Some("pool"))).await.unwrap());
    assert_eq!(served.get(&format!("/v1/pools?since={old}")).await.json(), json!({ "pools": pools }));
    let JobMatch::One(detail) = ledger.find_job(&ids[4].to_string()).await.unwrap() else { panic!() };
    let report = Report::of(&detail, &workers).unwrap();
    let answer = served.get(&format!("/v1/jobs/{}/report", ids[4])).await;
    assert_eq!(answer.json(), serde_json::to_value(&report).unwrap());
    let overview: Overview = serde_json::from_value(served.get("/v1/overview").await.json()).unwrap();
    assert_eq!(overview.windows.len(), 3);

    // A queued job: first without the broker's counts, then with counts that the caller gives.
    assert_eq!(served.get(&format!("/v1/jobs/{}/report", ids[0])).await.problem(), "no-times");
    let reasons = async |query: &str| {
        let answer = served.get(&format!("/v1/jobs/{}/why{query}", ids[0])).await.json();
        let reasons = answer["reasons"].as_array().unwrap().clone();
        reasons.iter().map(|reason| reason["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(reasons("").await, ["no_consumer"]);
    assert_eq!(reasons("?messages=3&consumers=1").await, ["jobs_ahead"]);

    for (path, problem) in [
        ("/v1/statistics?by=colour", "by: "),
        ("/v1/statistics?limit=0", "limit: "),
        ("/v1/samples?device=0", "worker"),
        ("/v1/samples?worker=w&device=0&points=501", "points: "),
        ("/v1/samples?worker=w&device=0&since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since: "),
        ("/v1/actions?before=canary", "before: "),
        ("/v1/pools?since=yesterday", "since: "),
        ("/v1/statistics/series?pool=%00", "pool: "),
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.problem(), "bad-request", "{path}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(problem), "{path}: {detail}");
    }
    for path in [
        "/v1/samples?worker=w&device=2147483647",
        "/v1/samples?worker=w&device=0&until=9999-12-31T00:00:00Z",
        "/v1/actions?limit=1",
        "/v1/labels",
        "/v1/statistics?since=9999-12-31T00:00:00Z",
        "/v1/statistics/series?since=0001-01-01T00:00:00Z",
        "/v1/pools?since=9999-12-31T00:00:00Z",
    ] {
        assert_eq!(served.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn workers_are_served_with_their_state_and_devices() {
    let (database, mut store, ledger) = Database::opened().await;
    assert_eq!(store.record(&[heartbeat(1, 0, false), heartbeat(2, 1, true)]).await.unwrap(), []);
    let served = Served::open(database.url()).await;
    let workers = served.get("/v1/workers").await.json();
    let expected: Vec<Value> = ledger
        .workers(&gpufleet_ledger::WorkerFilter::default())
        .await
        .unwrap()
        .into_iter()
        .map(|worker| serde_json::to_value(gpufleet_ledger::ListedWorker::from(worker)).unwrap())
        .collect();
    assert_eq!(workers, json!({ "workers": expected }));
    let named = served.get(&format!("/v1/workers?name={}", worker(2))).await.json();
    assert_eq!((named["workers"].as_array().unwrap().len(), &named["workers"][0]["state"]), (1, &json!("left")));
    assert_eq!(
        served.get(&format!("/v1/workers?heard_within_seconds=60&name={}", worker(2))).await.json(),
        json!({ "workers": [] })
    );
}

#[tokio::test]
async fn only_callers_with_a_token_are_answered() {
    let database = Database::fresh().await;
    let tokens = Tokens::of(&format!("{TOKEN}\n{TOKEN}2")).unwrap();
    let served = Served::with(database.url(), tokens, gpufleet_ledger::api::LAG_MAX_DEFAULT).await;
    let with = async |authorization: &str, path: &str| served.request("GET", path, authorization).await;
    for accepted in [TOKEN.to_owned(), format!("{TOKEN}2")] {
        assert_eq!(with(&format!("authorization: Bearer {accepted}\r\n"), "/v1/jobs").await.status, 200);
    }
    let wrong = [
        String::new(),
        "authorization: Bearer\r\n".to_owned(),
        format!("authorization: Bearer {TOKEN}3\r\n"),
        format!("authorization: Basic {TOKEN}\r\n"),
        format!("authorization: Bearer {}\r\n", "x".repeat(10_000)),
        format!("authorization: Bearer wrong\r\nauthorization: Bearer {TOKEN}\r\n"),
        "authorization: Bearer \u{fffd}\r\n".to_owned(),
    ];
    for wrong in &wrong {
        for path in ["/v1/jobs", "/v1/jobs/0199", "/v1/jobs/0199/logs", "/v1/workers"] {
            let response = with(wrong, path).await;
            assert_eq!((response.status, response.problem().as_str()), (401, "unauthorized"), "{wrong:?} {path}");
            assert_eq!(response.header("www-authenticate"), Some("Bearer"));
            assert!(!response.body.contains("canary"));
        }
    }
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(with("", open).await.status, 200, "{open}");
    }
}

#[tokio::test]
async fn hostile_requests_are_refused_by_name_and_none_is_an_error_of_the_server() {
    let (database, mut store, _) = Database::opened().await;
    fill(&mut store, 9).await;
    let served = Served::open(database.url()).await;
    for (query, named) in [
        ("state=unheard", "state"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("limit=1&limit=2", "limit"),
        ("kernel=a%00b", "kernel"),
        ("pool=%00", "pool"),
        ("label=run", "label"),
        ("label=a%00=b", "label"),
        ("since=yesterday", "since"),
        ("since=%2B262000-01-01T00:00:00Z", "since"),
        ("before=1_2", "before"),
        ("colour=red", "colour"),
        ("STATE=failed", "STATE"),
    ] {
        let response = served.get(&format!("/v1/jobs?{query}")).await;
        assert_eq!((response.status, response.problem().as_str()), (400, "bad-request"), "{query}: {response:?}");
        assert!(response.json()["detail"].as_str().unwrap().contains(named), "{query}: {response:?}");
    }
    for wrong in ["", "soon", "-1", "1.5"] {
        let refused = served.get(&format!("/v1/workers?heard_within_seconds={wrong}")).await;
        assert_eq!(refused.status, 400, "{wrong}");
        assert!(refused.body.contains("heard_within_seconds: expected a number"), "{}", refused.body);
    }
    let no_device = served.get("/v1/samples?worker=w&device=2147483648").await;
    assert_eq!(no_device.problem(), "bad-request");
    let too_long = served.get("/v1/workers?heard_within_seconds=31536001").await;
    assert_eq!(too_long.problem(), "bad-request");
    let last = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    for extreme in [
        "since=0000-01-01T00:00:00Z".to_owned(),
        "since=9999-12-31T23:59:59Z".to_owned(),
        format!("before=8210266876799999999.{last}"),
        format!("before=-8334601228800000000.{last}"),
        "kernel=%ff%fe".to_owned(),
        "kernel=';drop%20table%20jobs--".to_owned(),
        "label==".to_owned(),
        "%00=%00".to_owned(),
        "&&&=&".to_owned(),
    ] {
        let response = served.get(&format!("/v1/jobs?{extreme}")).await;
        assert!((200..500).contains(&response.status), "{extreme}: {response:?}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"] {
        let response = served.request(method, "/v1/jobs", "content-length: 0\r\n").await;
        assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let head = served.request("HEAD", "/v1/jobs", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let long = |bytes: usize| format!("/v1/jobs?kernel={}", "a".repeat(bytes));
    assert_eq!(served.get(&long(2_000)).await.problem(), "bad-request");
    assert_eq!(served.get(&long(9_000)).await.problem(), "url-too-long");
    let megabyte = served.get(&long(1 << 20)).await;
    assert!([0, 414, 431].contains(&megabyte.status), "{}", megabyte.status);
    assert_eq!(served.get("/v2/jobs").await.problem(), "not-found");
    for foreign in ["evil.example", "127.0.0.1.evil.example"] {
        let request = format!("GET /v1/jobs HTTP/1.1\r\nhost: {foreign}\r\nconnection: close\r\n\r\n");
        assert_eq!(served.send(request.as_bytes()).await.problem(), "misdirected", "{foreign}");
    }
    let garbage = served.send(b"\0\0\xff\xfe\r\n\r\n").await;
    assert!([0, 400].contains(&garbage.status), "{}", garbage.status);
    assert_eq!(served.get("/v1/jobs").await.json()["jobs"].as_array().unwrap().len(), 9);
}

/// The SQL that creates the read-only role, as in the documentation.
const READER_SQL: &str = include_str!("../../../deploy/postgres/gpufleet_reader.sql");

#[tokio::test]
async fn the_documented_role_reads_everything_and_writes_nothing() {
    let (database, mut store, _) = Database::opened().await;
    let job = info(id(7, 0, Some(AT)), AT);
    store.record(&[finished(job.job_id, 1, AttemptState::Succeeded, AT), heartbeat(1, 0, false)]).await.unwrap();
    database.execute(READER_SQL).await;
    let url = database.url_of("gpufleet_reader");
    let served = Served::open(url.parse().unwrap()).await;
    for path in ["/v1/jobs", &format!("/v1/jobs/{}", job.job_id), "/v1/workers", "/readyz"] {
        let response = served.get(path).await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
    }
    let mut reader = PgConnection::connect(&url).await.unwrap();
    for write in [
        "delete from jobs",
        "update workers set host = ''",
        "create table mine (x int)",
        "create temporary table mine (x int)",
    ] {
        let error = sqlx::query(write).execute(&mut reader).await.unwrap_err();
        let code = error.as_database_error().unwrap().code().unwrap().into_owned();
        assert!(["42501", "25006"].contains(&code.as_str()), "{write}: {error}");
    }
    // The role can also read the tables of later migrations.
    database.execute("create table later (x int)").await;
    sqlx::query("select * from later").fetch_all(&mut reader).await.unwrap();
}

#[tokio::test]
async fn without_a_usable_database_the_server_lives_and_says_why_it_is_not_ready() {
    let absent = Served::open("postgres://ann:canary@127.0.0.1:1/canary".parse().unwrap()).await;
    let database = Database::empty().await;
    let empty = Served::open(database.url()).await;
    for (served, kind) in [(absent, "database-unavailable"), (empty, "tables-unusable")] {
        assert_eq!(served.get("/healthz").await.json()["status"], "alive");
        for path in ["/readyz", "/v1/jobs", "/v1/workers"] {
            let response = served.get(path).await;
            assert_eq!((response.status, response.problem().as_str()), (503, kind), "{path}");
            let text = format!("{response:?}");
            assert!(!text.contains("canary") && !text.contains("127.0.0.1") && !text.contains("postgres:"), "{text}");
        }
    }
}

#[tokio::test]
async fn too_many_requests_at_once_are_refused_and_the_others_answered() {
    let (database, mut store, _) = Database::opened().await;
    fill(&mut store, 9).await;
    let served = Served::open(database.url()).await;
    assert_eq!(served.get("/v1/workers").await.status, 200);
    let mut locking = PgConnection::connect(&database.url_of("gpufleet")).await.unwrap();
    let mut lock = locking.begin().await.unwrap();
    sqlx::query("lock table jobs").execute(&mut *lock).await.unwrap();
    let many: Vec<Response> = futures::future::join_all((0..80).map(|_| served.get("/v1/jobs"))).await;
    let refused = many.iter().filter(|response| response.status == 503 && response.problem() == "overloaded").count();
    assert!(refused >= 80 - 64, "{refused}");
    let waits = many.iter().find(|response| response.problem() == "overloaded").unwrap();
    assert_eq!(waits.header("retry-after"), Some("1"));
    lock.rollback().await.unwrap();
    assert_eq!(served.get("/v1/jobs").await.status, 200);
}

#[tokio::test]
async fn the_served_document_is_the_committed_one() {
    let database = Database::fresh().await;
    let served = Served::open(database.url()).await;
    let document = served.get("/openapi.json").await;
    let committed = include_str!("../../../docs/src/reference/openapi.json");
    assert!(document.body.trim_end() == committed.trim_end(), "it differs; run `cargo xtask docs --write`");
    assert_eq!(document.json()["openapi"].as_str().unwrap().split('.').take(2).collect::<Vec<_>>(), ["3", "1"]);
    let paths: Vec<String> = document.json()["paths"].as_object().unwrap().keys().cloned().collect();
    for path in ["/healthz", "/readyz", "/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/{id}/logs", "/v1/workers"] {
        assert!(paths.iter().any(|known| known == path), "{path} is not in {paths:?}");
    }
}
