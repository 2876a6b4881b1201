//! Connections that read nothing, or send the body of a request slowly, keep no other caller from the server.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use gpufleet_service::server::{self, Pages};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Number of connections: more than the server has places.
const HOSTILE: usize = 260;
/// Size of a page: more than the kernel keeps of an answer.
const PAGE_BYTES: usize = 2 << 20;
/// Time limit for an answer, which takes milliseconds, also on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(3);
/// The server's deadline for unread answers, with room for a busy machine.
const LOST_WITHIN: Duration = Duration::from_secs(25);

struct Served {
    address: SocketAddr,
    _stop: DropGuard,
}

async fn serve() -> Served {
    let health = Router::new().route("/healthz", get(async || "alive"));
    let all = health.clone().route("/page", get(async || "page")).route("/large", get(async || vec![0_u8; PAGE_BYTES]));
    let (listener, address) = server::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(server::serve(listener, Pages { all, health }, stop.clone()));
    Served { address, _stop: stop.drop_guard() }
}

impl Served {
    /// Every address that begins with 127 is one of this machine's.
    async fn connect(&self, from: IpAddr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(self.address).await
    }

    async fn ask(&self, from: IpAddr, path: &str) -> io::Result<TcpStream> {
        let mut stream = self.connect(from).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").as_bytes()).await?;
        Ok(stream)
    }

    /// The status and the rest of the answer, if there is one at once.
    async fn get(&self, from: IpAddr, path: &str) -> Option<(u16, String)> {
        let answer = async {
            let mut text = String::new();
            self.ask(from, path).await?.read_to_string(&mut text).await?;
            io::Result::Ok(text)
        };
        let text = timeout(AT_ONCE, answer).await.ok()?.ok()?;
        let status = text.split(' ').nth(1)?.parse().ok()?;
        Some((status, text))
    }

    /// Connections that ask for much and read nothing.
    async fn besiege(&self, from: IpAddr) -> Vec<TcpStream> {
        let mut open = Vec::new();
        for _ in 0..HOSTILE {
            open.push(self.ask(from, "/large").await.unwrap());
        }
        open
    }
}

fn host(number: u8) -> IpAddr {
    [127, 0, 0, number].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_read_nothing_keep_out_no_other_address_and_no_health_check() {
    let served = serve().await;
    let _hostile = served.besiege(host(1)).await;
    let (status, answer) = served.get(host(1), "/healthz").await.expect("a health check of the same address");
    assert!(status == 200 && answer.ends_with("alive"), "{answer}");
    let (status, answer) = served.get(host(1), "/page").await.expect("an answer to the same address");
    assert!(status == 503 && answer.contains("gpufleet:overloaded"), "{answer}");
    let (status, answer) = served.get(host(2), "/page").await.expect("an answer to another address");
    assert!(status == 200 && answer.ends_with("page"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_read_nothing_end_at_the_deadline() {
    let served = serve().await;
    let _hostile = served.besiege(host(1)).await;
    let begun = Instant::now();
    while served.get(host(1), "/page").await.is_none_or(|(status, _)| status != 200) {
        assert!(begun.elapsed() < LOST_WITHIN, "the server still serves connections that read nothing");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_body_does_not_arrive_is_refused_and_its_connection_ends() {
    let served = serve().await;
    let mut stream = served.connect(host(1)).await.unwrap();
    stream.write_all(b"POST /page HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nslow").await.unwrap();
    let mut answer = String::new();
    timeout(LOST_WITHIN, stream.read_to_string(&mut answer)).await.expect("the connection ends").unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("did not arrive within 10 s"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_reaches_a_caller_that_reads_it() {
    let served = serve().await;
    let mut stream = served.ask(host(1), "/large").await.unwrap();
    let mut bytes = Vec::new();
    timeout(LOST_WITHIN, stream.read_to_end(&mut bytes)).await.expect("it comes in time").unwrap();
    assert!(bytes.len() > PAGE_BYTES);
}
