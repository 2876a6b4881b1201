//! A pool runs only what it allows: the catalog, signed programs, or everything. The ledger records the user that the
//! broker validated. (fault 23)

use std::fs;

use gpufleet::Job;
use gpufleet_schema::{
    Encoding, FailureCode, JobState, OneOrMany, PoolName, Priority, SigningKey, Verdict,
    topology::{TASKS, TYPE_TASK, reply_queue, task_key, task_queue},
};
use gpufleet_tests::{Ground, WAIT, kernels};
use gpufleet_transport::{Message, Properties};

fn saxpy() -> Job {
    Job::catalog("saxpy").scalar("a", 2.0).input("x", &[1.0_f32]).input("y", &[1.0_f32])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_runs_only_what_it_allows() {
    let ground = Ground::shared("policy").await;
    let folder = tempfile::tempdir().unwrap();
    ground.gpufleet(folder.path(), &["keygen", "key"]).await.ok();
    let key = SigningKey::from_pem(&fs::read_to_string(folder.path().join("key")).unwrap()).unwrap();
    let trusted = folder.path().join("key.pub").display().to_string();
    let pools = ["--pool", "open", "--pool", "shut:allow=catalog", "--pool", "vetted:allow=signed"];
    let worker = ground.worker_with(&[&pools[..], &["--trusted-key", &trusted]].concat()).await;
    let fleet = ground.client().await;

    let user = ground.broker().await.urls().user().to_owned();
    let stranger = SigningKey::generate().unwrap();
    let doubles = || kernels::doubles(&[3.0]);
    let cases = [
        ("open", doubles(), None),
        ("shut", saxpy(), None),
        ("shut", doubles(), Some("runs catalog kernels only, but the program is ptx")),
        ("shut", doubles().signed_by(&key), Some("runs catalog kernels only")),
        ("vetted", saxpy(), None),
        ("vetted", doubles().signed_by(&key), None),
        ("vetted", doubles(), Some("the ptx is not signed")),
        ("vetted", doubles().signed_by(&stranger), Some("by the untrusted key")),
    ];
    let count = cases.len();
    for (pool, job, refusal) in cases {
        let pool: PoolName = pool.parse().unwrap();
        let mut handle = fleet.submit(job.pool(pool.clone())).await.unwrap();
        let ended = handle.wait(WAIT).await;
        // The ledger has the user even if the job reached no device.
        let recorded = ground.final_job(handle.id()).await.job;
        assert_eq!(recorded.user_id.as_deref(), Some(user.as_str()), "{pool}");
        match refusal {
            None => drop(ended.unwrap()),
            Some(part) => {
                let error = ended.unwrap_err();
                let failure = error.failure().unwrap();
                assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::Policy), "{pool}");
                assert!(failure.message.contains(part), "{pool}: {}", failure.message);
            }
        }
    }
    assert!(worker.is_alive());
    ground.check_history(count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_changed_after_it_was_signed_does_not_run() {
    let ground = Ground::shared("tampered").await;
    let key = SigningKey::generate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("trusted");
    fs::write(&trusted, format!("{} # the team's\n", key.public())).unwrap();
    let _worker =
        ground.worker_with(&["--pool", "vetted:allow=signed", "--trusted-key", trusted.to_str().unwrap()]).await;
    let good = kernels::doubles(&[3.0]).signed_by(&key).build().unwrap().task;
    let mut bad = kernels::writes_beyond_its_buffer().build().unwrap().task;
    bad.signature = good.signature;
    let mut handle = ground.client().await.submit(Job::from_task(bad).pool("vetted".parse().unwrap())).await.unwrap();
    let error = handle.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.code, FailureCode::Policy);
    assert!(failure.message.contains("does not match the program"), "{}", failure.message);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_user_is_refused_by_the_broker_and_nothing_runs() {
    let ground = Ground::shared("forged-user").await;
    let broker = ground.broker().await;
    let task = saxpy().build().unwrap().task;
    let message = |user: &str| Message {
        exchange: TASKS,
        routing_key: task_key(&PoolName::default(), Priority::Normal),
        body: Encoding::MessagePack.encode_tasks(&OneOrMany::One(task.clone())).unwrap(),
        properties: Properties {
            content_type: Some("application/msgpack".to_owned()),
            kind: Some(TYPE_TASK.to_owned()),
            user_id: Some(user.to_owned()),
            ..Properties::default()
        },
    };
    broker.publish(message("somebody-else")).await.unwrap_err();
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    assert_eq!(broker.queue_depth(&queue).await.unwrap().unwrap().messages, 0);
    broker.publish(message(broker.urls().user())).await.unwrap();
    let _worker = ground.worker().await;
    ground.poll_job("ran", task.job_id, |job| job.state == JobState::Succeeded).await;
    let known = ground.final_job(task.job_id).await;
    assert_eq!(known.job.user_id.as_deref(), Some(broker.urls().user()));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_goes_only_to_the_queue_of_a_client() {
    let (ground, _worker) = Ground::with_worker("evil-reply").await;
    let broker = ground.broker().await;
    let low = task_queue(&PoolName::default(), Priority::Low);
    let own = reply_queue(&"a-client".parse().unwrap());
    for evil in [low.clone(), format!("{own}/../x"), "gpufleet.v1.events".to_owned()] {
        let job = saxpy().build().unwrap().task;
        let body = Encoding::MessagePack.encode_tasks(&OneOrMany::One(job)).unwrap();
        let properties = Properties {
            content_type: Some("application/msgpack".to_owned()),
            reply_to: Some(evil.clone()),
            ..Properties::default()
        };
        let routing_key = task_key(&PoolName::default(), Priority::Normal);
        broker.publish(Message { exchange: TASKS, routing_key, body, properties }).await.unwrap();
        let letters = gpufleet_tests::dead_letters(&ground, 1).await;
        assert!(letters[0].reason.contains("reply_to must name a client"), "{evil}: {}", letters[0].reason);
    }
    assert_eq!(broker.queue_depth(&low).await.unwrap().unwrap().messages, 0);
    ground.check_history(3).await;
}
