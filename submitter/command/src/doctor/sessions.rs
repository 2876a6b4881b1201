//! The addresses of sessions: whether this machine reaches the workers that take some.
//!
//! A port listens only while a session is open, so an idle worker refuses connections. A refusal shows that the host is reached. With a
//! name that does not resolve, or a host that does not answer, `gpufleet run` fails.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use gpufleet::schema::{SessionsSeen, sessions_seen::address};
use gpufleet_ledger::{WorkerRow, WorkerState};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{super::connection, finding::Finding};

const CHECK: &str = "sessions";
/// `gpufleet run` waits as long for an address.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The number of workers that are tried at once, so that a large fleet takes few file descriptors.
const TRIED_AT_ONCE: usize = 64;
/// More workers than these do not help.
const NAMED_MAX: usize = 5;

/// A worker that takes sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tried {
    worker: String,
    ports: [u16; 2],
    /// An error has each address with the reason.
    reached: Result<(), Vec<(String, String)>>,
}

/// Tries the addresses of the live workers that take sessions. There is no finding if none is known to take any.
pub async fn examine(workers: Result<&Vec<WorkerRow>, &String>) -> Option<Finding> {
    let this_host = connection::host_name();
    let up = workers.into_iter().flatten().filter(|worker| worker.state() == WorkerState::Up);
    let taking = up.filter_map(|worker| Some((worker, worker.sessions.as_ref()?)));
    let trials = taking.map(|(worker, sessions)| Tried::of(worker, sessions, this_host.as_deref()));
    let tried: Vec<Tried> = stream::iter(trials).buffered(TRIED_AT_ONCE).collect().await;
    judge(&tried)
}

impl Tried {
    /// Tries one address after the other, as `gpufleet run` does, until one is reached.
    async fn of(worker: &WorkerRow, sessions: &SessionsSeen, this_host: Option<&str>) -> Self {
        let tried = |reached| Self { worker: worker.worker.clone(), ports: sessions.ports, reached };
        let [port, _] = sessions.ports;
        let mut failed = Vec::new();
        for host in &sessions.hosts {
            let reached = match is_loopback(host) && this_host != Some(worker.host.as_str()) {
                true => Err(format!("only programs on {} reach it", worker.host)),
                false => reach(host, port).await,
            };
            match reached {
                Ok(()) => return tried(Ok(())),
                Err(reason) if port == 0 => failed.push((host.clone(), reason)),
                Err(reason) => failed.push((address(host, port), reason)),
            }
        }
        tried(Err(failed))
    }

    fn describe(&self) -> String {
        let failed = self.reached.as_ref().err().into_iter().flatten();
        let addresses: Vec<String> = failed.map(|(address, reason)| format!("{address} ({reason})")).collect();
        format!("{} at {}", self.worker, addresses.join(" and "))
    }
}

/// Resolves the name, and connects to the port unless it is 0, which stands for any. An error is the reason why the host is not reached.
async fn reach(host: &str, port: u16) -> Result<(), String> {
    let seconds = ANSWER_WITHIN.as_secs();
    let found = timeout(ANSWER_WITHIN, lookup_host((host, port))).await;
    let found = found.map_err(|_| format!("the name was not resolved within {seconds} s"))?;
    let addresses = found.map_err(|error| error.to_string())?;
    if port == 0 {
        return Ok(());
    }
    let connected = timeout(ANSWER_WITHIN, connect(addresses)).await;
    connected.unwrap_or_else(|_| Err(format!("no answer within {seconds} s")))
}

/// Connects to one of the addresses. A refused connection counts, because the host has refused it.
async fn connect(addresses: impl Iterator<Item = SocketAddr>) -> Result<(), String> {
    let mut problem = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => problem = error.to_string(),
        }
    }
    Err(problem)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn judge(tried: &[Tried]) -> Option<Finding> {
    let unreached: Vec<&Tried> = tried.iter().filter(|tried| tried.reached.is_err()).collect();
    let all = tried.len();
    let workers = if all == 1 { "worker" } else { "workers" };
    match (all, unreached.as_slice()) {
        (0, _) => None,
        (_, []) if tried.iter().all(|tried| tried.ports == [0, 0]) => Some(Finding::ok(
            CHECK,
            format!("the addresses of {all} {workers} resolve; each session takes any free port, so none was tried"),
        )),
        (_, []) => Some(Finding::ok(
            CHECK,
            format!(
                "this machine reaches {all} {workers}; a port listens only while a session is open, so a refused \
                 connection counts as an answer"
            ),
        )),
        (_, unreached) => Some(
            Finding::error(
                CHECK,
                format!(
                    "this machine does not reach {} of {all} {workers} that take sessions: {}; a host that is reached \
                     refuses a closed port at once, so a firewall or a wrong address is in the way",
                    unreached.len(),
                    named(unreached)
                ),
            )
            .fix(fix(unreached)),
        ),
    }
}

fn named(unreached: &[&Tried]) -> String {
    let shown: Vec<String> = unreached.iter().take(NAMED_MAX).map(|tried| tried.describe()).collect();
    let shown = shown.join(", ");
    match unreached.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn fix(unreached: &[&Tried]) -> String {
    let advertise = "start the worker with a --session-advertise HOST that clients resolve and reach";
    match unreached.iter().map(|tried| tried.ports).find(|ports| *ports != [0, 0]) {
        Some([first, last]) if first == last => format!("open port {first} of the host to its clients, or {advertise}"),
        Some([first, last]) => format!("open the ports {first}-{last} of the host to its clients, or {advertise}"),
        None => advertise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{
        super::{super::workers::tests::worker, finding::Status},
        *,
    };

    const THIS_HOST: &str = "rack-7";

    fn taking(hosts: &[&str], ports: [u16; 2]) -> WorkerRow {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let sessions = Some(SessionsSeen { hosts, ports, pools: Vec::new() });
        WorkerRow { host: THIS_HOST.to_owned(), sessions, ..worker("w1", 1, false) }
    }

    async fn tried(worker: &WorkerRow, this_host: &str) -> Tried {
        Tried::of(worker, worker.sessions.as_ref().unwrap(), Some(this_host)).await
    }

    fn socket_with_backlog_0() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        listener
    }

    #[tokio::test]
    async fn a_refused_connection_is_an_answer_and_so_is_an_open_session() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let worker = taking(&["127.0.0.1"], [port, port]);
        assert_eq!(tried(&worker, THIS_HOST).await.reached, Ok(()), "it is open");
        drop(listener);
        assert_eq!(tried(&worker, THIS_HOST).await.reached, Ok(()), "it is closed");
    }

    #[tokio::test]
    async fn a_host_that_drops_packets_a_name_without_an_address_and_a_foreign_loopback_are_not_reached() {
        // The kernel drops the handshakes of further connections while this one waits to be accepted.
        let listener = socket_with_backlog_0();
        let port = listener.local_addr().unwrap().port();
        let _waiting = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let name = "x".repeat(80);
        let reached = tried(&taking(&[&name, "127.0.0.1"], [port, port + 19]), THIS_HOST).await.reached;
        let [(first, unresolved), (second, silent)] = &reached.unwrap_err()[..] else { panic!("two addresses") };
        assert_eq!((first, second), (&format!("{name}:{port}"), &format!("127.0.0.1:{port}")));
        assert!(unresolved.contains("lookup"), "{unresolved}");
        assert_eq!(silent, "no answer within 2 s");
        let elsewhere = tried(&taking(&["127.0.0.1"], [port, port]), "laptop").await.reached.unwrap_err();
        assert_eq!(elsewhere[0].1, "only programs on rack-7 reach it");
    }

    #[tokio::test]
    async fn the_next_address_counts_if_the_first_one_is_not_reached() {
        let name = "x".repeat(80);
        assert_eq!(tried(&taking(&[&name, "127.0.0.1"], [0, 0]), THIS_HOST).await.reached, Ok(()));
    }

    fn found(reached: &[Result<(), &str>], ports: [u16; 2]) -> Option<Finding> {
        let tried = |(number, reached): (usize, &Result<(), &str>)| Tried {
            worker: format!("w{number}"),
            ports,
            reached: reached.map_err(|reason| vec![(format!("gpu-{number}:9480"), reason.to_owned())]),
        };
        judge(&reached.iter().enumerate().map(tried).collect::<Vec<_>>())
    }

    #[test]
    fn an_address_that_is_not_reached_is_an_error_with_its_reason_and_the_ports_to_open() {
        let ports = [9480, 9499];
        assert_eq!(found(&[], ports), None);
        let all = found(&[Ok(()), Ok(())], ports).unwrap();
        assert_eq!(all.status, Status::Ok);
        assert!(all.found.contains("reaches 2 workers") && all.found.contains("refused connection"), "{all:?}");
        assert!(found(&[Ok(())], [0, 0]).unwrap().found.contains("the addresses of 1 worker resolve"));
        let some = found(&[Ok(()), Err("no answer within 2 s")], ports).unwrap();
        assert_eq!(some.status, Status::Error);
        let named = "does not reach 1 of 2 workers that take sessions: w1 at gpu-1:9480 (no answer within 2 s)";
        assert!(some.found.contains(named), "{some:?}");
        assert!(some.fix.unwrap().contains("open the ports 9480-9499"));
        let many = found(&[Err("no route"); 8], [9480, 9480]).unwrap();
        assert!(many.found.contains("and 3 more") && many.fix.unwrap().contains("open port 9480"));
    }

    #[tokio::test]
    async fn silent_workers_and_those_without_sessions_are_not_tried() {
        let silent = WorkerRow { is_silent: true, ..taking(&["192.0.2.1"], [9480, 9480]) };
        assert_eq!(examine(Ok(&vec![silent, worker("w2", 1, false)])).await, None);
        assert_eq!(examine(Err(&"no ledger is configured".to_owned())).await, None);
    }
}
