//! The broker: its release, TLS, the login, the vhost, and what the user may do there.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use futures::future::join_all;
use gpufleet::schema::{
    ClientName, PoolName, Priority,
    topology::{self, CONTROL_CLIENT, EVENTS_CLIENT, TASKS},
};
use gpufleet_transport::{Broker, BrokerUrl, BrokerUrls, ConnectError, Options, Release};

use super::{
    super::{
        complaint::{Complaint, chain},
        connection,
        options::BrokerOptions,
    },
    consumer_timeout::{self, Hold},
    finding::{Finding, Status},
    pools::PoolDepths,
    recorder::{self, Events},
};

/// What was seen of the broker.
#[derive(Debug)]
pub struct Seen {
    reached: Result<Reached, Complaint>,
    /// Empty without a login.
    rights: Vec<Right>,
    hold: Hold,
    /// None without a login.
    pub pools: Option<Vec<PoolDepths>>,
    pub events: Events,
}

/// The connection's steps.
#[derive(Debug, Clone)]
struct Reached {
    nodes: Vec<Node>,
    user: String,
    vhost: String,
    /// None if no node answers.
    login: Option<Result<(), Box<ConnectError>>>,
}

/// A node of the broker, and what it answered before login.
#[derive(Debug, Clone)]
struct Node {
    url: BrokerUrl,
    release: Result<Release, ConnectError>,
}

/// Something that a producer does, and what the broker answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Right {
    action: String,
    outcome: Result<(), String>,
}

/// The oldest release that the fleet is made for.
const RELEASE_MIN: (u32, u32) = (3, 10);
/// A check is not worth a longer wait.
const DEADLINE: Duration = Duration::from_secs(10);

/// Connects and asks the broker about the pools that are known to be in use, and about the default one.
pub async fn examine(options: &BrokerOptions, known: &BTreeSet<PoolName>, hold: Option<Duration>) -> Seen {
    let configured = Hold::of(options.amqp_url.is_none());
    let unknown = || Err("the broker can't be asked".to_owned());
    let urls = match connection::broker_urls(options) {
        Ok(urls) => urls,
        Err(complaint) => {
            return Seen {
                reached: Err(complaint),
                rights: Vec::new(),
                hold: configured,
                pools: None,
                events: unknown(),
            };
        }
    };
    let nodes = Node::ask_all(&urls).await;
    let (user, vhost) = (urls.user().to_owned(), urls.vhost().to_owned());
    let connected = if nodes.iter().any(Node::answers) {
        let options = Options { confirm_deadline: DEADLINE, ..Options::new(urls, "gpufleet doctor") };
        Some(Broker::connect(options).await)
    } else {
        None
    };
    let login =
        connected.as_ref().map(|connected| connected.as_ref().map(drop).map_err(|error| Box::new(error.clone())));
    let reached = Ok(Reached { nodes, user, vhost, login });
    let Some(Ok(broker)) = connected else {
        return Seen { reached, rights: Vec::new(), hold: configured, pools: None, events: unknown() };
    };
    let rights = rights(&broker, known).await;
    let hold = match hold {
        Some(time) => consumer_timeout::hold(&broker, time).await,
        None => configured,
    };
    // Without a recorder the ledger knows little, and jobs go to the default pool unless a user names another.
    let pools = known.iter().cloned().chain([PoolName::default()]).collect();
    let pools = Some(PoolDepths::of_all(&broker, pools).await);
    let events = recorder::events(&broker).await;
    let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, broker.close()).await;
    Seen { reached, rights, hold, pools, events }
}

async fn rights(broker: &Broker, pools: &BTreeSet<PoolName>) -> Vec<Right> {
    let mut rights = vec![Right::new("receive replies", receive_replies(broker).await)];
    for pool in pools {
        let key = topology::task_key(pool, Priority::Normal);
        let outcome = broker.check_publish(TASKS, &key).await;
        rights.push(Right::new(format!("submit to {pool}"), outcome));
        let outcome = broker.check_publish(EVENTS_CLIENT, &topology::submissions_key(pool)).await;
        rights.push(Right::new(format!("report submissions to {pool}"), outcome));
    }
    rights.push(Right::new("cancel jobs", broker.check_publish(CONTROL_CLIENT, "").await));
    rights
}

/// Declares a reply queue as a client does, reads from it and deletes it.
async fn receive_replies(broker: &Broker) -> Result<(), ReplyError> {
    let client = ClientName::fresh(broker.urls().user());
    let queue = topology::reply_queue(&client);
    broker.declare_reply_queue(&client).await?;
    let read = broker.get(&queue, 1).await.map(drop);
    // The broker deletes a queue without a consumer after ten minutes anyway.
    drop(broker.delete_queue(&queue).await);
    Ok(read?)
}

#[derive(Debug, thiserror::Error)]
enum ReplyError {
    #[error(transparent)]
    Declare(#[from] gpufleet_transport::DeclareError),
    #[error(transparent)]
    Read(#[from] gpufleet_transport::QueueError),
}

impl Right {
    fn new<E: std::error::Error>(action: impl Into<String>, outcome: Result<(), E>) -> Self {
        Self { action: action.into(), outcome: outcome.map_err(|error| chain(&error)) }
    }

    fn judge(&self) -> Finding {
        let check = format!("permission to {}", self.action);
        match &self.outcome {
            Ok(()) => Finding::ok(check, "granted"),
            Err(problem) => Finding::explained(check, problem),
        }
    }
}

impl Seen {
    pub fn findings(&self) -> Vec<Finding> {
        let reached = match &self.reached {
            Ok(reached) => reached,
            Err(complaint) => return vec![Finding::of_complaint("broker", complaint)],
        };
        let mut findings = reached.findings();
        findings.extend(self.rights.iter().map(Right::judge));
        if self.pools.is_some() {
            findings.push(self.hold.judge());
        }
        findings
    }
}

impl Reached {
    fn findings(&self) -> Vec<Finding> {
        let is_cluster = self.nodes.len() > 1;
        let mut findings: Vec<_> = self.nodes.iter().flat_map(|node| node.judge(is_cluster)).collect();
        match &self.login {
            None => findings.push(Finding::skipped("login", "the broker can't be reached")),
            Some(login) => {
                // Clients use the nodes that answer.
                findings.iter_mut().filter(|finding| finding.status == Status::Error).for_each(Finding::weaken);
                findings.extend(self.judge_login(login));
            }
        }
        findings
    }

    fn judge_login(&self, login: &Result<(), Box<ConnectError>>) -> Vec<Finding> {
        let user = Finding::ok("login", format!("user {}", self.user));
        match login {
            Ok(()) => vec![user, Finding::ok("vhost", format!("{:?}", self.vhost))],
            Err(error) => {
                let text = error.to_string();
                match error.as_ref() {
                    ConnectError::NoVhost { .. } => vec![user, Finding::explained("vhost", &text)],
                    _ => vec![Finding::explained("login", &text), Finding::skipped("vhost", "the login fails")],
                }
            }
        }
    }
}

impl Node {
    async fn ask_all(urls: &BrokerUrls) -> Vec<Self> {
        let ask = async |url: &BrokerUrl| Self { url: url.clone(), release: Broker::release(url, DEADLINE).await };
        join_all(urls.nodes().iter().map(ask)).await
    }

    const fn answers(&self) -> bool {
        self.release.is_ok()
    }

    /// The checks of one node of several have its address in their names.
    fn judge(&self, is_one_of_several: bool) -> [Finding; 2] {
        let name = |check: &str| match is_one_of_several {
            true => format!("{check} {}:{}", self.url.host(), self.url.port()),
            false => check.to_owned(),
        };
        [self.judge_broker(name("broker")), self.judge_tls(name("tls"))]
    }

    fn judge_broker(&self, check: String) -> Finding {
        let url = &self.url;
        match &self.release {
            Ok(release) if release.numbers().is_some_and(|numbers| numbers < RELEASE_MIN) => {
                Finding::warning(check, format!("{release} at {url} is older than 3.10"))
                    .fix("upgrade RabbitMQ to 3.10 or newer")
            }
            Ok(release) => Finding::ok(check, format!("{release} at {url}")),
            Err(ConnectError::Tls { .. }) => Finding::skipped(check, format!("TLS with {url} fails")),
            Err(error) => Finding::explained(check, &error.to_string()),
        }
    }

    fn judge_tls(&self, check: String) -> Finding {
        match &self.release {
            Err(error @ ConnectError::Tls { .. }) => Finding::explained(check, &error.to_string()),
            Err(_) => Finding::skipped(check, "the broker can't be reached"),
            Ok(_) if self.url.is_tls() => {
                Finding::ok(check, "the connection is encrypted, and its certificate is trusted")
            }
            Ok(_) if is_loopback(self.url.host()) => Finding::ok(check, "not used, and the broker is on this machine"),
            Ok(_) => Finding::warning(check, "not used: the password and the arrays cross the network in plain text")
                .fix("give the broker a certificate and use amqps://HOST:5671"),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use gpufleet_transport::PublishError;

    use super::*;

    fn reached(
        url: &str,
        release: Result<&str, ConnectError>,
        login: Option<Result<(), ConnectError>>,
    ) -> Vec<Finding> {
        let url = self::url(url);
        let (user, vhost) = (url.user().to_owned(), url.vhost().to_owned());
        let nodes = vec![Node { url, release: release.map(self::release) }];
        Reached { nodes, user, vhost, login: login.map(|login| login.map_err(Box::new)) }.findings()
    }

    fn release(version: &str) -> Release {
        Release { product: "RabbitMQ".to_owned(), version: version.to_owned() }
    }

    fn url(url: &str) -> BrokerUrl {
        url.parse().unwrap()
    }

    fn statuses(findings: &[Finding]) -> Vec<(&str, Status)> {
        findings.iter().map(|finding| (finding.check.as_str(), finding.status)).collect()
    }

    const PLAIN: &str = "amqp://anna:canary@127.0.0.1/v";
    const REMOTE: &str = "amqp://anna:canary@rabbit.example/v";
    const TLS: &str = "amqps://anna:canary@rabbit.example/v";

    #[test]
    fn every_step_of_a_connection_has_its_finding_and_no_password() {
        use Status::{Error, Ok as Fine, Skipped, Warning};
        let reason = || "because".to_owned();
        let unreachable = |text: &str| ConnectError::Unreachable { url: url(text), reason: reason() };
        let untrusted = ConnectError::Tls { url: url(TLS), reason: reason() };
        let refused = ConnectError::Refused { url: url(PLAIN), reason: reason() };
        let no_vhost = ConnectError::NoVhost { url: url(PLAIN), reason: reason() };
        let cases = [
            (reached(PLAIN, Ok("3.10.8"), Some(Ok(()))), [Fine, Fine, Fine].as_slice(), Some(Fine)),
            (reached(REMOTE, Ok("4.1.0"), Some(Ok(()))), &[Fine, Warning, Fine], Some(Fine)),
            (reached(PLAIN, Ok("3.9.1"), Some(Ok(()))), &[Warning, Fine, Fine], Some(Fine)),
            (reached(PLAIN, Err(unreachable(PLAIN)), None), &[Error, Skipped, Skipped], None),
            (reached(TLS, Err(untrusted), None), &[Skipped, Error, Skipped], None),
            (reached(PLAIN, Ok("3.10.8"), Some(Err(refused))), &[Fine, Fine, Error], Some(Skipped)),
            (reached(PLAIN, Ok("3.10.8"), Some(Err(no_vhost))), &[Fine, Fine, Fine], Some(Error)),
        ];
        for (findings, expected, vhost) in cases {
            let expected = ["broker", "tls", "login"].into_iter().zip(expected.iter().copied());
            let expected: Vec<_> = expected.chain(vhost.map(|status| ("vhost", status))).collect();
            assert_eq!(statuses(&findings), expected);
            for finding in findings {
                assert!(!format!("{finding:?}").contains("canary"), "{finding:?}");
                assert_eq!(finding.fix.is_some(), matches!(finding.status, Error | Warning), "{finding:?}");
            }
        }
    }

    #[test]
    fn a_silent_node_is_a_warning_while_another_one_serves() {
        let silent = ConnectError::Unreachable { url: url("amqp://ana@b/v"), reason: "because".to_owned() };
        let nodes = vec![
            Node { url: url("amqp://ana@a/v"), release: Ok(release("3.13.7")) },
            Node { url: url("amqp://ana@b/v"), release: Err(silent) },
        ];
        let found = |login| {
            let reached = Reached { nodes: nodes.clone(), user: "ana".to_owned(), vhost: "v".to_owned(), login };
            reached.findings().into_iter().find(|finding| finding.check == "broker b:5672").unwrap()
        };
        assert_eq!(found(Some(Ok(()))).status, Status::Warning);
        assert!(found(Some(Ok(()))).fix.is_some());
        assert_eq!(found(None).status, Status::Error);
    }

    #[test]
    fn a_missing_permission_is_an_error_that_names_the_remedy() {
        let refused = PublishError::Forbidden { reason: "ACCESS_REFUSED - no".to_owned() };
        let finding = Right::new("submit to team-a", Err(refused)).judge();
        assert_eq!((finding.check.as_str(), finding.status), ("permission to submit to team-a", Status::Error));
        assert!(finding.fix.unwrap().contains("gpufleet permissions"));
        assert_eq!(Right::new::<PublishError>("cancel jobs", Ok(())).judge().status, Status::Ok);
    }
}
