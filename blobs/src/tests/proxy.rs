//! A TCP proxy between a store and its server, which causes faults.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::{self, Runtime},
    sync::watch,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Accepts connections and requests, and never answers.
    Silent,
    /// Asks to slow down.
    Busy,
    /// Answers with a text that is no S3.
    Strange,
    /// Forwards a few bytes at a time to the client.
    Slow,
}

/// The proxy. It has a runtime of its own, so that tests can stop their time. It ends when this is dropped.
pub(super) struct Proxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    runtime: Option<Runtime>,
}

const BUSY: &[u8] = b"HTTP/1.1 503 Slow Down\r\ncontent-type: application/xml\r\ncontent-length: 60\r\n\r\n\
    <?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>   ";
const STRANGE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const SLOW_BYTES: usize = 1 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(20);

impl Proxy {
    pub(super) fn start(server: SocketAddr) -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (fault, faults) = watch::channel(Fault::None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, faults.clone()));
            }
        });
        Self { address, fault, runtime: Some(runtime) }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks the connections, and does this to new ones.
    pub(super) fn cause(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut faults: watch::Receiver<Fault>) {
    let fault = *faults.borrow_and_update();
    tokio::select! {
        _ = faults.changed() => {}
        () = pass(&mut client, server, fault) => {}
    }
}

async fn pass(client: &mut TcpStream, server: SocketAddr, fault: Fault) {
    match fault {
        Fault::None => {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            drop(copy_bidirectional(client, &mut server).await);
        }
        Fault::Silent => std::future::pending().await,
        Fault::Busy => answer(client, BUSY).await,
        Fault::Strange => answer(client, STRANGE).await,
        Fault::Slow => {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
            tokio::select! {
                _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                () = trickle(&mut from_server, &mut to_client) => {}
            }
        }
    }
}

async fn trickle(from: &mut (impl tokio::io::AsyncRead + Unpin), to: &mut (impl tokio::io::AsyncWrite + Unpin)) {
    let mut piece = [0; SLOW_BYTES];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
        tokio::time::sleep(SLOW_PAUSE).await;
    }
}

/// Answers each request on the connection. Only its head is read: the client sends the body or gives up.
async fn answer(client: &mut TcpStream, answer: &[u8]) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(1..) = client.read(&mut piece).await {
        if client.write_all(answer).await.is_err() {
            return;
        }
    }
}
