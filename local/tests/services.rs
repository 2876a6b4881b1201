//! Private services: they start in parallel, survive crashes, and leave no process or file behind.

use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use gpufleet_local::{Services, StateDir, process::marked, state::MARKER};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::poll::poll_until;

mod poll;

/// Time limit for a clean-up: much longer than the guard's own limits.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);
const OWNER_VARIABLE: &str = "GPUFLEET_LOCAL_TEST_OWNER";

fn processes_of(state: &str) -> Vec<u32> {
    marked(MARKER, state).iter().map(|identity| identity.pid).collect()
}

async fn greets(port: u16) -> bool {
    let attempt = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        stream.read_u8().await
    };
    matches!(tokio::time::timeout(Duration::from_secs(1), attempt).await, Ok(Ok(1)))
}

#[tokio::test(flavor = "multi_thread")]
async fn services_start_serve_survive_crashes_and_stop() {
    let services = Services::ephemeral().await.unwrap();
    let (broker, postgres) = (services.broker(), services.postgres());
    let path = services.state().path().to_owned();

    // Spaces are separate and can be created in parallel.
    let ((first, _), (second, _)) = tokio::try_join!(services.space("a"), services.space("a")).unwrap();
    assert_ne!(first, second);
    assert!(broker.eval("rabbit_vhost:list_names().").await.unwrap().contains(&first));
    postgres.psql(&first, "CREATE TABLE kept (n int)").await.unwrap();
    assert!(postgres.psql(&second, "SELECT * FROM kept").await.unwrap_err().to_string().contains("does not exist"));
    broker.delete_vhost(&second).await.unwrap();
    postgres.drop_database(&second).await.unwrap();
    assert!(broker.create_vhost("no \"quotes\"").await.is_err());
    assert!(broker.eval("nonsense:call().").await.unwrap_err().to_string().contains("undef"));
    assert!(broker.ctl(&["list_vhosts"]).await.unwrap().contains(&first));

    // A crash keeps ports and data.
    let (broker_port, broker_pid) = (broker.port(), broker.pid().unwrap());
    broker.kill9().await.unwrap();
    assert!(broker.pid().is_none());
    broker.restart().await.unwrap();
    assert_eq!(broker.port(), broker_port);
    assert_ne!(broker.pid().unwrap(), broker_pid);
    assert!(broker.eval("rabbit_vhost:list_names().").await.unwrap().contains(&first));
    let postgres_port = postgres.port();
    postgres.kill9().await.unwrap();
    postgres.restart().await.unwrap();
    assert_eq!(postgres.port(), postgres_port);
    postgres.psql(&first, "INSERT INTO kept VALUES (1)").await.unwrap();

    // A suspended service is silent and continues afterwards.
    broker.pause();
    assert!(!greets(broker.port()).await);
    broker.resume();
    poll_until("an answer of the resumed broker", CLEAN_WITHIN, async || greets(broker.port()).await).await;

    services.stop().await.unwrap();
    assert_eq!(processes_of(&path.to_string_lossy()), Vec::<u32>::new());
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_in_the_same_directory_attaches() {
    let state = StateDir::ephemeral().unwrap();
    let first = Services::start(Arc::clone(&state)).await.unwrap();
    let second = Services::start(Arc::clone(&state)).await.unwrap();
    assert_eq!(first.broker().pid(), second.broker().pid());
    assert_eq!(first.postgres().pid(), second.postgres().pid());
    assert_eq!(first.endpoints("x"), second.endpoints("x"));
    second.stop().await.unwrap();
    assert!(first.broker().pid().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_behind_when_the_owner_is_killed() {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner_that_never_returns", "--nocapture", "--include-ignored"])
        .env(OWNER_VARIABLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(owner.stdout.take().unwrap()));
    let state = lines.map_while(Result::ok).find_map(|line| line.split_once("state=").map(|(_, path)| path.to_owned()));
    let state = state.expect("the owner prints its state directory");
    assert!(processes_of(&state).len() >= 3, "epmd, the broker and Postgres run");
    owner.kill().unwrap();
    owner.wait().unwrap();
    poll_until("the guard's work", CLEAN_WITHIN, async || {
        processes_of(&state).is_empty() && !std::path::Path::new(&state).exists()
    })
    .await;
}

/// The owner in the test above, which runs this test as a process of its own. On its own, it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn owner_that_never_returns() {
    if std::env::var_os(OWNER_VARIABLE).is_none() {
        return;
    }
    let services = Services::ephemeral().await.unwrap();
    println!("state={}", services.state().path().display());
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_nodes_survives_the_loss_of_one() {
    const RUNNING: &str = "length(rabbit_nodes:all_running()).";
    let services = Services::ephemeral_cluster(3).await.unwrap();
    let nodes = services.nodes();
    for node in nodes {
        assert_eq!(node.eval(RUNNING).await.unwrap(), "3");
    }
    let (space, endpoints) = services.space("a").await.unwrap();
    assert_eq!(endpoints.amqp_url.matches(&format!("/{space}")).count(), 3, "{endpoints:?}");

    // The port mapper and the other nodes stay.
    nodes[0].kill9().await.unwrap();
    poll_until("notice of the loss", CLEAN_WITHIN, async || nodes[1].eval(RUNNING).await.unwrap() == "2").await;
    poll_until("an answer of a node that is left", CLEAN_WITHIN, async || greets(nodes[1].port()).await).await;
    nodes[0].restart().await.unwrap();
    poll_until("return of the node", CLEAN_WITHIN, async || nodes[1].eval(RUNNING).await.unwrap() == "3").await;
    assert!(nodes[0].eval("rabbit_vhost:list_names().").await.unwrap().contains(&space));
    services.stop().await.unwrap();
    assert!(!services.state().path().exists());
}
