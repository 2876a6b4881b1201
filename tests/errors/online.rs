//! Runs commands against a broker, a database and a worker with the emulated device.

use std::path::Path;

use gpufleet_tests::{Ground, gpufleet_command};

use crate::cases::{Cases, Masks};

const PASSWORD: &str = "secret";

pub async fn run(folder: &Path, masks: Masks) -> String {
    let ground = Ground::shared("errors").await;
    let worker = ground.worker_with(&["--pool", "shut:allow=catalog"]).await;
    ground.declare_pools(&["empty"]).await;
    let (broker, postgres) = (ground.services().broker(), ground.services().postgres());
    let vhost = ground.fleet().space();
    broker.create_vhost("errors-bare").await.unwrap();
    postgres.create_database("errors-bare").await.unwrap();
    confine_a_user(&ground, vhost).await;

    let (amqp_url, database_url) = (ground.endpoints().amqp_url.clone(), postgres.tcp_url(vhost));
    let environment = [("GPUFLEET_AMQP_URL", amqp_url.as_str()), ("GPUFLEET_DATABASE_URL", database_url.as_str())];
    let job = finished_job(&ground, folder, &environment).await;
    let masks = masks
        .hiding(broker.url().rsplit_once('/').expect("the URL has a vhost").0, "<broker>")
        .hiding(postgres.tcp_url("").trim_end_matches('/'), "<postgres>")
        .hiding(&format!("127.0.0.1:{}", broker.port()), "<broker-address>")
        .hiding(&format!("127.0.0.1:{}", postgres.port()), "<postgres-address>")
        .hiding(worker.name(), "<worker>")
        .hiding(vhost, "<fleet>")
        .hiding(&job, "<job>");
    let text = Cases::read(include_str!("online.txt")).run(folder, &environment, &masks).await;
    broker.delete_vhost("errors-bare").await.unwrap();
    text
}

/// Creates a broker user without any permission.
async fn confine_a_user(ground: &Ground, vhost: &str) {
    let added =
        format!("rabbit_auth_backend_internal:add_user(<<\"guest-of-{vhost}\">>, <<\"{PASSWORD}\">>, <<\"test\">>)");
    ground.erlang(&format!("ok = {added}.")).await;
    let user = format!("guest-of-{vhost}");
    ground.services().broker().ctl(&["set_permissions", "--vhost", vhost, &user, "^$", "^$", "^$"]).await.unwrap();
}

/// Runs two jobs and returns the id of one of them. The second job makes a short prefix of the id ambiguous.
async fn finished_job(ground: &Ground, folder: &Path, environment: &[(&str, &str)]) -> String {
    let saxpy = ["submit", "saxpy", "--arg=a=2", "--zeros=x=f32[3]", "--zeros=y=f32[3]", "--detach"];
    let mut job = String::new();
    for _ in 0..2 {
        let submitted = gpufleet_command(folder, environment, &saxpy).await.ok();
        job = submitted.stdout.trim().to_owned();
        ground.final_job(job.parse().unwrap()).await;
    }
    job
}
