//! The broker refuses a worker's replies, retries or dead letters for a while. The worker holds the message and tries
//! again, and no job runs twice. A reply that the client's queue keeps refusing goes to the unclaimed replies. (faults
//! 16 and 20)

use gpufleet::JobError;
use gpufleet_local::Signal;
use gpufleet_schema::{
    AttemptState, ClientName, Encoding, JobId, JobState, OneOrMany, PoolName, Priority,
    topology::{
        DEAD, DEAD_KEY, DEAD_QUEUE, HEADER_REPLIES, REPLIES_IN_LISTS, TASKS, UNCLAIMED_QUEUE, reply_queue, task_key,
        task_queue,
    },
};
use gpufleet_tests::{Ground, METRICS, TestWorker, WAIT, dead_letters, delivered, kernels, poll_until};
use gpufleet_transport::{Message, Properties};

const REFUSED: &str = "publish failed, trying again";

/// Makes the queues of this name refuse all messages in excess of `room`.
async fn close_queues(ground: &Ground, pattern: &str, room: u32) {
    let full = format!("[{{<<\"max-length\">>, {room}}}, {{<<\"overflow\">>, <<\"reject-publish\">>}}]");
    let set = format!(
        "ok = rabbit_policy:set(@, <<\"full\">>, <<\"^{pattern}$\">>, {full}, 0, <<\"queues\">>, <<\"scenario\">>)."
    );
    ground.erlang(&set).await;
}

async fn open_queues(ground: &Ground) {
    ground.erlang("ok = rabbit_policy:delete(@, <<\"full\">>, <<\"scenario\">>).").await;
}

/// Waits until the broker has refused the worker's message several times. Returns how often the delivery was requeued
/// meanwhile.
async fn requeues_while_refused(worker: &TestWorker) -> usize {
    poll_until("several refusals", async || worker.count_in_log(REFUSED) >= 4).await;
    worker.count_in_log("delivery requeued")
}

/// Publishes a task whose replies go to a queue that only this scenario reads.
async fn ask(ground: &Ground, client: &ClientName) -> JobId {
    let mut task = kernels::doubles(&[1.0]).build().unwrap().task;
    task.reply = Some(client.clone());
    ground.publish_task(&task).await;
    task.job_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_arrives_after_its_queue_refused_it_for_a_while() {
    let (ground, worker) = Ground::with_worker("reply-nacked").await;
    let broker = ground.node_broker().await;
    let client: ClientName = "patient".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    close_queues(&ground, &reply_queue(&client), 0).await;
    let job_id = ask(&ground, &client).await;
    assert_eq!(requeues_while_refused(&worker).await, 0);
    open_queues(&ground).await;

    let mut consumer = broker.consume(reply_queue(&client), 1);
    let delivery = delivered(&mut consumer).await;
    let replies = Encoding::MessagePack.decode_replies(&delivery.body).unwrap();
    let reply = &replies.as_slice()[0];
    assert_eq!((reply.job_id, reply.state, reply.attempt), (Some(job_id), AttemptState::Succeeded, 1));
    delivery.ack().await.unwrap();
    assert_eq!(ground.final_job(job_id).await.job.state, JobState::Succeeded);
    ground.check_history(1).await;
}

/// The broker redelivers the task. The redelivery waits for the reply and is acknowledged with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_reply_arrives_although_the_connection_broke() {
    let ground = Ground::shared("reply-nacked-cut").await;
    let proxy = ground.proxy().await;
    let worker = ground.worker_with(&["--amqp-url", proxy.url()]).await;
    let broker = ground.node_broker().await;
    let client: ClientName = "patient".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    close_queues(&ground, &reply_queue(&client), 0).await;
    let job_id = ask(&ground, &client).await;
    requeues_while_refused(&worker).await;
    proxy.cut();
    let before = worker.count_in_log(REFUSED);
    poll_until("more refusals", async || worker.count_in_log(REFUSED) >= before + 2).await;
    open_queues(&ground).await;

    let mut consumer = broker.consume(reply_queue(&client), 1);
    let delivery = delivered(&mut consumer).await;
    let replies = Encoding::MessagePack.decode_replies(&delivery.body).unwrap();
    assert_eq!((replies.as_slice()[0].job_id, replies.as_slice()[0].attempt), (Some(job_id), 1));
    delivery.ack().await.unwrap();
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    poll_until("the task is acknowledged", async || ground.messages_in(&queue).await == 0).await;
    assert_eq!(ground.final_job(job_id).await.attempts.len(), 1);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_behind_an_unconfirmed_one_share_a_message_if_the_producer_reads_lists() {
    const JOBS: usize = 5;
    let ground = Ground::shared("gathered").await;
    let worker = ground.worker_with(&METRICS).await;
    let broker = ground.node_broker().await;
    for (asked, sizes) in [(Some(REPLIES_IN_LISTS), vec![1, JOBS - 1]), (None, vec![1; JOBS])] {
        let client: ClientName = format!("reads-{}", asked.unwrap_or("one")).parse().unwrap();
        broker.declare_reply_queue(&client).await.unwrap();
        close_queues(&ground, &reply_queue(&client), 0).await;
        let ended = async || worker.metrics().await.sum("gpufleet_attempts_total", &[]);
        let before = ended().await;
        for _ in 0..JOBS {
            let mut task = kernels::doubles(&[1.0]).build().unwrap().task;
            task.reply = Some(client.clone());
            let headers = asked.map(|form| (HEADER_REPLIES.to_owned(), form.into()));
            let properties = Properties {
                content_type: Some(Encoding::MessagePack.content_type().to_owned()),
                headers: headers.into_iter().collect(),
                ..Properties::default()
            };
            let body = Encoding::MessagePack.encode_tasks(&OneOrMany::One(task)).unwrap();
            let routing_key = task_key(&PoolName::default(), Priority::Normal);
            let message = Message { exchange: TASKS, routing_key, body, properties };
            broker.publish(message).await.unwrap();
        }
        poll_until("all jobs have run", async || ended().await >= before + JOBS as f64).await;
        open_queues(&ground).await;

        let mut consumer = broker.consume(reply_queue(&client), 1);
        let mut found = Vec::new();
        while found.iter().sum::<usize>() < JOBS {
            let delivery = delivered(&mut consumer).await;
            found.push(Encoding::MessagePack.decode_replies(&delivery.body).unwrap().as_slice().len());
            delivery.ack().await.unwrap();
        }
        assert_eq!(found, sizes, "{asked:?}");
    }
    ground.check_history(2 * JOBS).await;
}

/// A stopping worker does not wait for the reply queue, because the grace period is for jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_worker_publishes_a_refused_reply_to_the_unclaimed_replies() {
    let (ground, worker) = Ground::with_worker("reply-kept").await;
    let broker = ground.node_broker().await;
    let client: ClientName = "refusing".parse().unwrap();
    broker.declare_reply_queue(&client).await.unwrap();
    close_queues(&ground, &reply_queue(&client), 0).await;
    let job_id = ask(&ground, &client).await;
    ground.poll_log("a refusal", &worker, REFUSED).await;
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));

    let mut consumer = broker.consume(UNCLAIMED_QUEUE.to_owned(), 1);
    let delivery = delivered(&mut consumer).await;
    assert_eq!(delivery.routing_key, client.as_str(), "the routing key names the client");
    let replies = Encoding::MessagePack.decode_replies(&delivery.body).unwrap();
    assert_eq!(replies.as_slice()[0].job_id, Some(job_id));
    assert!(!replies.as_slice()[0].outputs.is_empty(), "with its outputs");
    delivery.ack().await.unwrap();
    // The message was acknowledged, so a later worker does not run the job.
    let late = ground.worker().await;
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    assert_eq!(ground.messages_in(&queue).await, 0);
    assert_eq!(ground.final_job(job_id).await.attempts.len(), 1);
    assert!(late.is_alive());
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_waits_for_room_and_its_job_does_not_run_again() {
    let (ground, worker, fleet) = Ground::served("dead-full").await;
    let broker = ground.broker().await;
    close_queues(&ground, DEAD_QUEUE, 1).await;
    let filler = || Message::to(DEAD, DEAD_KEY, b"filler".to_vec());
    // A quorum queue notices that it is full only after a while.
    let mut fillers = 0;
    while let Ok(()) = broker.publish(filler()).await {
        fillers += 1;
        assert!(fillers < 1000, "the queue must refuse a message");
    }
    let mut handle = fleet.submit(kernels::endless().attempts_max(1)).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    worker.kill_executor().await;
    assert_eq!(requeues_while_refused(&worker).await, 0);
    // A quorum queue unblocks its publishers when a message leaves it, but only while it has a bound.
    close_queues(&ground, DEAD_QUEUE, 1000).await;
    dead_letters(&ground, fillers).await;

    let JobError::Failed(failed) = handle.wait(WAIT).await.unwrap_err() else { panic!("it failed") };
    assert_eq!((failed.state, failed.attempt), (AttemptState::Dead, 1));
    let letters = dead_letters(&ground, 1).await;
    assert!(letters[0].reason.contains("1 attempt that lost its executor"), "{letters:?}");
    assert_eq!(ground.final_job(handle.id()).await.attempts.len(), 1);
    ground.check_history(1).await;
}
