//! The commands that read the ledger print the same through the read API as from the database, without a database password.

use gpufleet_tests::{Ended, Ground, gpufleet_command};

const TOKEN: &str = "0123456789abcdef-canary";

#[tokio::test(flavor = "multi_thread")]
async fn commands_print_the_same_through_the_api_as_from_the_database() {
    let (ground, _worker) = Ground::with_worker("read-api").await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let saxpy =
        ["submit", "saxpy", "--arg", "a=2.0", "--fill", "x=f32[3]:1", "--fill", "y=f32[3]:1", "--label", "run=1"];
    let mut ids = Vec::new();
    for name in ["first", "second"] {
        let json = ground.gpufleet(folder, &[&saxpy[..], &["--name", name, "-o", "json"]].concat()).await.json();
        ids.push(json["job_id"].as_str().unwrap().to_owned());
    }
    for id in &ids {
        ground.final_job(id.parse().unwrap()).await;
    }
    let api = ground.serve_ledger(&[("GPUFLEET_API_TOKEN", TOKEN)]).await;
    let through_api = [("GPUFLEET_API_URL", api.url.as_str()), ("GPUFLEET_API_TOKEN", TOKEN)];
    let both = async |arguments: &[&str]| {
        let direct = ground.gpufleet(folder, arguments).await;
        let served = gpufleet_command(folder, &through_api, arguments).await;
        (direct, served)
    };
    let (first, both_begin) = (ids[0].as_str(), &ids[0][..8]);
    for arguments in [
        &["history", "-o", "json"][..],
        &["history", "-o", "csv"],
        &[
            "history",
            "--state",
            "succeeded",
            "--kernel",
            "saxpy",
            "--pool",
            "default",
            "--label",
            "run=1",
            "-o",
            "json",
        ],
        &["history", "--since", "2h", "-o", "csv"],
        &["history", "--kernel", "absent"],
        &["history", "--limit", "1", "-o", "json"],
        &["show", first],
        &["show", first, "-o", "json"],
        &["show", "ffff"],
        &["show", both_begin],
        &["show", ".."],
        &["logs", first],
        &["logs", first, "--attempt", "7"],
    ] {
        let (direct, served) = both(arguments).await;
        assert_eq!(
            (direct.code, &direct.stdout, &direct.stderr),
            (served.code, &served.stdout, &served.stderr),
            "{arguments:?}"
        );
    }
    // Heartbeats arrive between the two commands.
    let (direct, served) = both(&["workers", "-o", "json"]).await;
    let named = |ended: &Ended| {
        let workers = ended.json();
        (workers[0]["worker"].clone(), workers[0]["state"].clone(), workers[0]["devices"][0]["uuid"].clone())
    };
    assert_eq!(named(&direct), named(&served));
    for file in ["jobs.csv", "jobs.jsonl"] {
        let export = async |environment: &[(&str, &str)]| {
            gpufleet_command(folder, environment, &["export", "--out", file]).await.ok();
            std::fs::read_to_string(folder.join(file)).unwrap()
        };
        let direct = export(&[("GPUFLEET_DATABASE_URL", &ground.endpoints().database_url)]).await;
        assert_eq!(direct, export(&through_api).await, "{file}");
        assert!(direct.contains(first));
    }

    let refused = async |environment: &[(&str, &str)]| gpufleet_command(folder, environment, &["history"]).await;
    let unauthorized = refused(&[("GPUFLEET_API_URL", &api.url), ("GPUFLEET_API_TOKEN", "wrong-canary")]).await;
    assert!(unauthorized.code == 8 && unauthorized.stderr.contains("needs a token"), "{unauthorized:?}");
    assert!(unauthorized.stderr.contains("GPUFLEET_API_TOKEN") && !unauthorized.stderr.contains("canary"));
    let absent = refused(&[("GPUFLEET_API_URL", "http://127.0.0.1:1")]).await;
    assert!(absent.code == 8 && absent.stderr.contains("does not answer"), "{absent:?}");
    let foreign = refused(&[("GPUFLEET_API_URL", &format!("{}/elsewhere", api.url))]).await;
    assert!(foreign.code == 8, "{foreign:?}");

    let (code, log) = api.stop().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("canary") && !log.contains("postgres:"), "{log}");
    ground.check_history(2).await;
}
