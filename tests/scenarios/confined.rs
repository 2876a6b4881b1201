//! A vhost whose users have exactly the permissions that `gpufleet permissions` prints.

use std::{process::Stdio, time::Duration};

use futures::future::join_all;
use gpufleet::Fleet;
use gpufleet_local::programs;
use gpufleet_tests::{Ground, TestWorker, WAIT, gpufleet_command, run_python};
use gpufleet_transport::{Broker, Options};
use tokio::{
    process::{Child, Command},
    sync::Semaphore,
};

const PASSWORD: &str = "secret";
const POOLS: [&str; 4] = ["--pool", "team-a:affinity", "--pool", "team-b"];
/// Bounds the concurrent `rabbitmqctl` commands. Each starts an Erlang VM, which occupies a core for seconds. More of them would exceed
/// their time limit.
static COMMANDS: Semaphore = Semaphore::const_new(2);

/// How the printed commands are executed.
#[derive(Debug, Clone, Copy)]
pub enum By {
    /// Literally, with `rabbitmqctl`.
    Rabbitmqctl,
    /// By calling the functions of the broker that `rabbitmqctl` calls, which starts no Erlang VMs.
    Functions,
}

/// A vhost in which each process has a user with only the permissions of its role.
pub struct Confined {
    pub ground: Ground,
    pub vhost: String,
    pub worker: TestWorker,
    _recorder: Child,
}

impl Confined {
    pub async fn start(label: &str, by: By) -> Self {
        let ground = Ground::shared(label).await;
        let vhost = format!("{}-confined", ground.fleet().space());
        ground.services().broker().create_vhost(&vhost).await.unwrap();
        let roles: [(&str, &[&str]); 5] = [
            ("anna", &["--role", "producer", "--pool", "team-a"]),
            ("bert", &["--role", "producer", "--pool", "team-b"]),
            ("walt", &["--role", "worker", "--pool", "default", "--pool", "team-a", "--pool", "team-b"]),
            ("rita", &["--role", "recorder"]),
            ("olga", &["--role", "operator"]),
        ];
        join_all(roles.map(|(name, role)| allow(&ground, &vhost, name, role, by))).await;
        let recorder = Command::new(programs::ours(None, "gpufleet-ledger").unwrap())
            .arg("record")
            .env("GPUFLEET_AMQP_URL", url(&ground, &vhost, "rita"))
            .env("GPUFLEET_DATABASE_URL", &ground.endpoints().database_url)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let worker = worker(&ground, &vhost, &POOLS).await;
        Self { ground, vhost, worker, _recorder: recorder }
    }

    /// Starts another worker with the permissions of the first one.
    pub async fn start_worker(&self) -> TestWorker {
        worker(&self.ground, &self.vhost, &POOLS).await
    }

    pub async fn start_worker_with(&self, arguments: &[&str]) -> TestWorker {
        worker(&self.ground, &self.vhost, arguments).await
    }

    pub fn user(&self, name: &str) -> String {
        user(&self.ground, name)
    }

    pub fn url(&self, name: &str) -> String {
        url(&self.ground, &self.vhost, name)
    }

    pub async fn fleet(&self, name: &str) -> Fleet {
        Fleet::connect(&self.url(name)).await.unwrap()
    }

    pub async fn broker(&self, name: &str) -> Broker {
        Broker::connect(Options::new(self.url(name).parse().unwrap(), "a scenario")).await.unwrap()
    }

    /// Returns a connection of the broker's administrator.
    pub async fn admin(&self) -> Broker {
        let url = self.ground.services().broker().vhost_url(&self.vhost);
        Broker::connect(Options::new(url.parse().unwrap(), "a scenario")).await.unwrap()
    }

    /// Runs a Python program as a user. Returns its output.
    pub async fn python(&self, name: &str, program: &str, arguments: &[&str]) -> String {
        python(&self.url(name), WAIT, &[&[program], arguments].concat()).await
    }

    pub async fn end(self) {
        self.ground.services().broker().delete_vhost(&self.vhost).await.unwrap();
    }
}

/// Runs a Python program that connects to this URL. Returns its output.
pub async fn python(url: &str, deadline: Duration, arguments: &[&str]) -> String {
    let output = run_python(url, deadline, arguments).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Creates a user of the ground's own vhost with the printed permissions of a role. Returns the URL.
pub async fn user_of(ground: &Ground, name: &str, role: &[&str]) -> String {
    let vhost = ground.fleet().space().to_string();
    allow(ground, &vhost, name, role, By::Functions).await;
    url(ground, &vhost, name)
}

async fn worker(ground: &Ground, vhost: &str, arguments: &[&str]) -> TestWorker {
    let broker = url(ground, vhost, "walt");
    ground.worker_with(&[&["--amqp-url", &broker], arguments].concat()).await
}

/// Returns a user name that is unique on the broker, because scenarios share the broker and its users.
fn user(ground: &Ground, name: &str) -> String {
    format!("{name}-{}", ground.fleet().space())
}

fn url(ground: &Ground, vhost: &str, name: &str) -> String {
    let broker = ground.services().broker();
    format!("amqp://{}:{PASSWORD}@127.0.0.1:{}/{vhost}", user(ground, name), broker.port())
}

/// Creates a user, and runs the commands that `gpufleet permissions` prints for its role.
async fn allow(ground: &Ground, vhost: &str, name: &str, role: &[&str], by: By) {
    let (broker, user, folder) = (ground.services().broker(), user(ground, name), tempfile::tempdir().unwrap());
    let added = format!("rabbit_auth_backend_internal:add_user(<<\"{user}\">>, <<\"{PASSWORD}\">>, <<\"scenario\">>)");
    ground.erlang(&format!("ok = {added}.")).await;
    let arguments = [&["permissions", "--user", &user, "--vhost", vhost], role].concat();
    let printed = gpufleet_command(folder.path(), &[], &arguments).await.ok();
    for line in printed.stdout.lines().filter(|line| !line.starts_with('#')) {
        let words = words(line).await;
        assert_eq!(words[0], "rabbitmqctl", "{line}");
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let done = match by {
            By::Rabbitmqctl => {
                let _turn = COMMANDS.acquire().await.expect("the semaphore is never closed");
                broker.ctl(&arguments).await
            }
            By::Functions => broker.eval(&function_of(&arguments)).await,
        };
        done.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// Returns the call of the broker's function that a `rabbitmqctl` command makes.
fn function_of(arguments: &[&str]) -> String {
    let [command, "--vhost", vhost, user, rest @ ..] = arguments else { panic!("{arguments:?}") };
    let more = match (*command, rest) {
        ("set_permissions", [_, _, _]) | ("set_topic_permissions", [_, _, _]) | ("clear_topic_permissions", []) => rest,
        _ => panic!("{arguments:?}"),
    };
    let text = |text: &&str| format!("<<\"{}\">>", text.replace('\\', r"\\").replace('"', r#"\""#));
    let arguments: Vec<_> = [user, vhost].into_iter().chain(more).chain(&["scenario"]).map(text).collect();
    format!("ok = rabbit_auth_backend_internal:{command}({}).", arguments.join(", "))
}

/// Splits a line into words as a shell does.
async fn words(line: &str) -> Vec<String> {
    let output = Command::new("sh").args(["-c", &format!("printf '%s\\n' {line}")]).output().await.unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
