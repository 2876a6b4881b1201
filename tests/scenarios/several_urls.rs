//! Programs that have the URLs of several nodes skip a node that is down, silent or lost. After a refused login they try no other node,
//! because every node would refuse it. Two proxies stand for two nodes.

use std::time::{Duration, Instant};

use gpufleet_tests::{Ground, METRICS, Silence, WAIT, gpufleet_command, kernels, poll_until};

const SUBMIT: [&str; 8] = ["submit", "saxpy", "--arg", "a=2", "--fill", "x=f32[4]:1", "--fill", "y=f32[4]:1"];
/// The deadline for skipping a node: three seconds for a silent node, and time for two busy cores.
const PASSED_OVER_WITHIN: Duration = Duration::from_secs(20);

/// Returns the URL with another address of the server.
fn at(url: &str, place: &str) -> String {
    let (login, rest) = url.split_once('@').unwrap();
    format!("{login}@{place}/{}", rest.split_once('/').unwrap().1)
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_move_on_from_a_silent_and_from_a_lost_node() {
    let ground = Ground::shared("several-urls").await;
    let (silent, lost) = (ground.proxy().await, ground.proxy().await);
    let urls = format!("{},{}", silent.url(), lost.url());
    silent.silence(Silence::All);
    // One connection in two is tried at the silent node first.
    for _ in 0..4 {
        let begun = Instant::now();
        gpufleet::Fleet::connect(&urls).await.unwrap().close().await;
        assert!(begun.elapsed() < PASSED_OVER_WITHIN, "{:?}", begun.elapsed());
    }
    let worker = ground.worker_with(&[&["--amqp-url", &urls], &METRICS[..]].concat()).await;
    let fleet = gpufleet::Fleet::connect(&urls).await.unwrap();
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();

    // Both programs are connected through the other proxy.
    silent.clear();
    drop(lost);
    worker.poll_metric("the worker has moved on", "gpufleet_broker_connected", &[], 1.0).await;
    let result = fleet.submit(kernels::doubles(&[2.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(result.output::<f32>("y").unwrap(), [4.0]);
    let names = silent.url().rsplit_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    poll_until("the log names the node", async || {
        let log = std::fs::read_to_string(worker.process().log()).unwrap();
        log.lines().any(|line| line.contains("broker connection restored") && line.contains(&names))
    })
    .await;
    fleet.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_names_every_node_that_it_cannot_reach() {
    let ground = Ground::shared("several-absent").await;
    let folder = tempfile::tempdir().unwrap();
    let url = ground.node_url();
    let dead = [at(&url, "127.0.0.1:1"), at(&url, "127.0.0.1:2")];
    let ended = gpufleet_command(folder.path(), &[("GPUFLEET_AMQP_URL", &dead.join(","))], &SUBMIT).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    for place in ["127.0.0.1:1: Connection refused", "127.0.0.1:2: Connection refused"] {
        assert!(ended.stderr.contains(place), "{ended:?}");
    }
    let password = url.split_once('@').unwrap().0.rsplit_once(':').unwrap().1;
    assert!(!ended.stderr.contains(password), "{ended:?}");

    let _worker = ground.worker().await;
    let urls = [&dead[..], &[url]].concat().join(",");
    gpufleet_command(folder.path(), &[("GPUFLEET_AMQP_URL", &urls)], &SUBMIT).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_told_whichever_nodes_are_down() {
    let ground = Ground::shared("several-refused").await;
    let folder = tempfile::tempdir().unwrap();
    let url = ground.node_url();
    let password = url.split_once('@').unwrap().0.rsplit_once(':').unwrap().1;
    let wrong = url.replace(password, "canary");
    let urls = format!("{},{wrong}", at(&wrong, "127.0.0.1:1"));
    let ended = gpufleet_command(folder.path(), &[("GPUFLEET_AMQP_URL", &urls)], &SUBMIT).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    assert!(ended.stderr.contains("wrong user or password"), "{ended:?}");
    assert!(!ended.stderr.contains("canary") && !ended.stderr.contains("127.0.0.1:1 "), "{ended:?}");
}
