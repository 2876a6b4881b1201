//! A submission that the broker or the client refuses fails at once with the reason and leaves nothing behind: no lost
//! job, and no job in the ledger without a message on the broker. (faults 15, 16, 17 and 42)

use std::{collections::BTreeSet, process::Stdio};

use futures::{
    StreamExt as _,
    future::{join, join_all},
    stream,
};
use gpufleet::SubmitError;
use gpufleet_local::programs;
use gpufleet_schema::{
    Dtype, PoolName, Priority,
    bounds::MESSAGE_BYTES_MAX,
    topology::{HEADER_TRACEPARENT, TASKS, task_key, task_queue},
};
use gpufleet_tests::{Ground, WAIT, kernels, poll_until};
use gpufleet_transport::{Broker, Message, Options, Properties, PublishError};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_unroutable_messages_of_a_pipelined_batch_fail() {
    const MESSAGES: usize = 3000;
    const IN_FLIGHT: usize = 500;
    let ground = Ground::shared("unroutable").await;
    let broker = ground.broker().await;
    let good = task_key(&PoolName::default(), Priority::Normal);
    let is_bad = |index: usize| index % 10 == 3;
    let published = stream::iter(0..MESSAGES).map(|index| {
        let routing_key = if is_bad(index) { format!("nowhere.{index}") } else { good.clone() };
        let message = Message::to(TASKS, routing_key, index.to_string().into_bytes());
        let broker = broker.clone();
        async move { (index, broker.publish(message).await) }
    });
    let outcomes: Vec<_> = published.buffer_unordered(IN_FLIGHT).collect().await;
    for (index, outcome) in &outcomes {
        match outcome {
            Ok(()) => assert!(!is_bad(*index), "message {index} went nowhere"),
            Err(PublishError::Unroutable { routing_key, .. }) => assert_eq!(*routing_key, format!("nowhere.{index}")),
            Err(error) => panic!("message {index}: {error}"),
        }
    }
    let failed: BTreeSet<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).map(|(index, _)| index).collect();
    assert_eq!((outcomes.len(), failed.len()), (MESSAGES, MESSAGES / 10));
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    let kept = (MESSAGES - failed.len()) as u32;
    poll_until("all others", async || broker.queue_depth(&queue).await.unwrap().unwrap().messages == kept).await;
}

/// A quorum queue without a majority confirms nothing for hours. Here the queue's process is suspended.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_confirms_nothing_does_not_delay_the_search_for_a_refused_message() {
    /// The number of messages: more than a connection has channels for publishing.
    const MESSAGES: usize = 16;
    const SEARCHES: usize = 20;
    let ground = Ground::shared("unconfirmed").await;
    // The messages in the suspended queue must stay unconfirmed until the end.
    let options = Options::new(ground.endpoints().amqp_url.parse().unwrap(), "a scenario");
    let broker = Broker::connect(Options { confirm_deadline: 10 * WAIT, ..options }).await.unwrap();
    let good = task_key(&PoolName::default(), Priority::Normal);
    ground.declare_queue("stuck", "[]").await;
    ground.suspend_queue("stuck").await;
    let publish_one = |exchange, routing_key: &str| {
        let message = Message::to(exchange, routing_key, b"x".to_vec());
        let broker = broker.clone();
        async move { broker.publish(message).await }
    };
    let publish_all = |exchange, routing_key: &str| join_all((0..MESSAGES).map(|_| publish_one(exchange, routing_key)));
    let unconfirmed = tokio::spawn(publish_all("", "stuck"));
    poll_until("the queue has all messages", async || ground.unseen_by("stuck").await >= MESSAGES).await;
    for refused in publish_all("nowhere", "x").await {
        assert!(matches!(refused, Err(PublishError::NoExchange { .. })), "{refused:?}");
    }
    publish_all(TASKS, &good).await.into_iter().for_each(|published| published.unwrap());
    // Other messages are published during a search.
    for _ in 0..SEARCHES {
        let others = stream::iter(0..10 * MESSAGES).map(|_| publish_one(TASKS, &good)).buffer_unordered(MESSAGES);
        let (refused, others) = join(publish_one("nowhere", "x"), others.collect::<Vec<_>>()).await;
        assert!(matches!(refused, Err(PublishError::NoExchange { .. })), "{refused:?}");
        others.into_iter().for_each(|published| published.unwrap());
    }
    assert!(!unconfirmed.is_finished(), "the suspended queue confirms nothing");
    ground.resume_queue("stuck").await;
    unconfirmed.await.unwrap().into_iter().for_each(|published| published.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_jobs_and_the_ledger_has_no_refused_job() {
    const ROOM: usize = 3;
    let (ground, fleet) = Ground::with_client("queue-full").await;
    let mut handles = vec![fleet.submit(kernels::doubles(&[0.0])).await.unwrap()];
    let policy = format!(
        "ok = rabbit_policy:set(@, <<\"full\">>, <<\"^gpufleet.v1.tasks\">>, [{{<<\"max-length\">>, {ROOM}}}], 0, <<\"queues\">>, <<\"scenario\">>)."
    );
    ground.erlang(&policy).await;
    // A quorum queue notices that it is full only after a while.
    let refused = loop {
        match fleet.submit(kernels::doubles(&[1.0])).await {
            Ok(handle) => handles.push(handle),
            Err(error) => break error,
        }
        assert!(handles.len() < 100 * ROOM, "the queue must refuse a message");
    };
    assert!(matches!(refused, SubmitError::Refused { .. }), "{refused:?}");
    assert!(refused.to_string().contains("pool default") && refused.to_string().contains("full"), "{refused}");
    assert!(refused.retry_after().is_some_and(|pause| !pause.is_zero()), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let job = ["submit", "mandelbrot", "--arg", "width=8", "--arg", "height=8", "--arg", "centre_x=-0.5"];
    let more = ["--arg", "centre_y=0.0", "--arg", "step=0.3", "--arg", "max_iterations=50", "--detach"];
    let ended = ground.gpufleet(folder.path(), &[&job[..], &more].concat()).await;
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    assert!(ended.stderr.contains("full") && ended.stdout.is_empty(), "{ended:?}");

    // When a worker takes messages from the queue, there is room again.
    let _worker = ground.worker().await;
    poll_until("room for one more", async || match fleet.submit(kernels::doubles(&[2.0])).await {
        Ok(handle) => {
            handles.push(handle);
            true
        }
        Err(error) => {
            assert!(matches!(error, SubmitError::Refused { .. }), "{error:?}");
            false
        }
    })
    .await;
    for handle in &mut handles {
        handle.wait(WAIT).await.unwrap();
    }
    // The ledger has only the accepted jobs.
    ground.check_history(handles.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_names_a_queue_with_other_arguments_both_values_and_the_remedy() {
    let ground = Ground::shared("drifted").await;
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    let arguments = [
        "{<<\"x-queue-type\">>, longstr, <<\"quorum\">>}",
        "{<<\"x-delivery-limit\">>, signedint, 7}",
        "{<<\"x-overflow\">>, longstr, <<\"reject-publish\">>}",
        "{<<\"x-dead-letter-strategy\">>, longstr, <<\"at-least-once\">>}",
        "{<<\"x-dead-letter-exchange\">>, longstr, <<\"gpufleet.v1.dead\">>}",
        "{<<\"x-dead-letter-routing-key\">>, longstr, <<\"dead\">>}",
    ];
    ground.broker().await.delete_queue(&queue).await.unwrap();
    ground.declare_queue(&queue, &format!("[{}]", arguments.join(","))).await;
    let mut command = Command::new(programs::ours(None, "gpufleet-worker").unwrap());
    command.args(["run", "--cuda", "emulated"]).env("GPUFLEET_AMQP_URL", &ground.endpoints().amqp_url);
    let ended = tokio::time::timeout(WAIT, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = ended.expect("it ends").unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code().is_some_and(|code| code != 0), "{said}");
    for part in [
        queue.as_str(),
        "x-delivery-limit = 7",
        "expects 20",
        "let the workers of that version empty it",
        "delete_queue",
    ] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_names_an_exchange_of_an_earlier_version_and_how_to_delete_it() {
    let ground = Ground::shared("old-exchange").await;
    let tasks = "rabbit_misc:r(@, exchange, <<\"gpufleet.v1.tasks\">>)";
    ground.erlang(&format!("rabbit_exchange:delete({tasks}, false, <<\"scenario\">>), ok.")).await;
    let declared = format!("rabbit_exchange:declare({tasks}, direct, true, false, false, [], <<\"scenario\">>)");
    ground.erlang(&format!("{declared}, ok.")).await;
    let mut command = Command::new(programs::ours(None, "gpufleet-worker").unwrap());
    command.args(["run", "--cuda", "emulated"]).env("GPUFLEET_AMQP_URL", &ground.endpoints().amqp_url);
    let ended = tokio::time::timeout(WAIT, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = ended.expect("it ends").unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code().is_some_and(|code| code != 0), "{said}");
    let delete = format!("rabbitmqadmin --vhost={} delete exchange name=gpufleet.v1.tasks", ground.fleet().space());
    for part in ["exchange gpufleet.v1.tasks", "type = direct", "expects topic", delete.as_str()] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_refuses_to_publish_an_oversized_message_or_header() {
    let (ground, _worker, fleet) = Ground::served("oversize").await;
    let large = kernels::doubles(&[1.0]).input("more", &vec![0_u8; MESSAGE_BYTES_MAX]);
    let error = fleet.submit(large).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("more (16.0 MiB)") && said.contains("split the job"), "{said}");

    let broker = ground.broker().await;
    let message = |bytes: usize, header: usize| {
        let mut properties = Properties::default();
        properties.headers.insert(HEADER_TRACEPARENT.to_owned(), "x".repeat(header).into());
        let routing_key = task_key(&PoolName::default(), Priority::Normal);
        Message { exchange: TASKS, routing_key, body: vec![0; bytes], properties }
    };
    let error = broker.publish(message(MESSAGE_BYTES_MAX + 1, 0)).await.unwrap_err();
    assert!(matches!(error, PublishError::TooLarge { max: MESSAGE_BYTES_MAX, .. }), "{error:?}");
    let error = broker.publish(message(0, 200_000)).await.unwrap_err();
    assert!(matches!(error, PublishError::HeaderTooLarge { .. }), "{error:?}");

    // A job is refused before it runs if its output does not fit into a reply.
    let large = kernels::doubles(&[1.0]).zeros("more", Dtype::U8, [MESSAGE_BYTES_MAX as u64]).output("more");
    let error = fleet.submit(large).await.unwrap().wait(WAIT).await.unwrap_err();
    assert!(error.failure().unwrap().message.contains("a reply carries at most"), "{error}");
    // The connections are still open.
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_pool_leads_to_the_one_that_workers_serve() {
    let ground = Ground::shared("mistyped-pool").await;
    let worker = ground.worker_with(&["--pool", "team-a"]).await;
    ground.poll_worker("the worker is in the ledger", worker.name(), |_| true).await;
    let folder = tempfile::tempdir().unwrap();
    for (pool, hint) in [("taem-a", "did you mean --pool team-a?"), ("elsewhere", "check the pool's name")] {
        let submit = ["submit", "saxpy", "--arg", "a=2", "--zeros", "x=f32[3]", "--zeros", "y=f32[3]", "--pool", pool];
        let refused = ground.gpufleet(folder.path(), &submit).await;
        assert!(refused.code != 0 && refused.stderr.contains(hint), "{}", refused.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_exchange_was_deleted_and_made_by_another_worker_gets_its_bindings_back() {
    let (ground, _worker, fleet) = Ground::served("lost-bindings").await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    let tasks = "rabbit_misc:r(@, exchange, <<\"gpufleet.v1.tasks\">>)";
    ground.erlang(&format!("rabbit_exchange:delete({tasks}, false, <<\"scenario\">>), ok.")).await;
    // The start of a worker of another pool does the same.
    ground.broker().await.declare_base().await.unwrap();
    poll_until("the bindings are back", async || match fleet.submit(kernels::doubles(&[2.0])).await {
        Ok(mut job) => job.wait(WAIT).await.is_ok(),
        Err(_) => false,
    })
    .await;
}
