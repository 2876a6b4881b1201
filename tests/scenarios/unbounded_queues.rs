//! Queues without readers do not fill the disk. New unclaimed replies replace the oldest ones, which are counted. A
//! full event queue delays acknowledgements but loses no event.

use gpufleet_schema::{
    bounds::MESSAGE_BYTES_MAX,
    topology::{LEDGER_QUEUE, REPLIES, UNCLAIMED_QUEUE},
};
use gpufleet_tests::{Ground, WAIT, kernels, poll_until};
use gpufleet_transport::{Message, Properties};

#[tokio::test(flavor = "multi_thread")]
async fn new_unclaimed_replies_replace_the_oldest_ones_which_are_counted() {
    const REPLIES_SENT: u64 = 6;
    const ROOM_BYTES: usize = 2 * MESSAGE_BYTES_MAX;
    let ground = Ground::with_recorder_process("unclaimed").await;
    // The policy replaces the actual bound of several gigabytes.
    ground.set_policy(UNCLAIMED_QUEUE, &format!("{{<<\"max-length-bytes\">>, {ROOM_BYTES}}}")).await;
    let broker = ground.broker().await;
    for index in 0..REPLIES_SENT {
        let (routing_key, body) = (format!("left-{index}"), vec![0; MESSAGE_BYTES_MAX]);
        let properties = Properties::default();
        broker.publish(Message { exchange: REPLIES, routing_key, body, properties }).await.unwrap();
    }
    poll_until("the oldest replies are gone", async || ground.messages_in(UNCLAIMED_QUEUE).await == 2).await;
    let log = ground.fleet().ledger().unwrap().log();
    let counted = format!("replies_total={}", REPLIES_SENT - 2);
    poll_until("the recorder has counted the lost replies", async || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.lines().any(|line| line.contains(&counted)))
    })
    .await;
    let _worker = ground.worker().await;
    let mut handle = ground.client().await.submit(kernels::doubles(&[3.0])).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [6.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_of_events_delays_the_record_and_not_the_replies() {
    const JOBS: usize = 20;
    let ground = Ground::with_recorder_process("ledger-full").await;
    let worker = ground.worker().await;
    let fleet = ground.client().await;
    ground.fleet().stop_ledger().await.unwrap();
    ground.set_policy(LEDGER_QUEUE, "{<<\"max-length\">>, 1}").await;
    let mut handles = Vec::new();
    for index in 0..JOBS {
        handles.push(fleet.submit(kernels::doubles(&[index as f32])).await.unwrap());
    }
    for handle in &mut handles {
        handle.wait(WAIT).await.unwrap();
    }
    ground.poll_log("the reason for delayed acknowledgements", &worker, "events not published yet").await;
    ground.fleet().start_ledger().await.unwrap();
    ground.check_history(JOBS).await;
}
