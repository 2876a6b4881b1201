//! Viewers who stop reading keep no other viewer from downloading.

mod service;

use std::time::Duration;

use service::{Options, Service, answer};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

const OUTPUT: &str = "/outputs/01990f3e-0000-7000-8000-000000000001/y?format=raw";
/// As many as have a turn at a time.
const STALLED: usize = 4;
/// A download that stands still ends after three seconds; the rest is room for a busy machine.
const WITHIN: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn four_viewers_that_stop_reading_block_no_download() {
    let service = Service::start(Options::default()).await;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        let request = format!("GET {OUTPUT} HTTP/1.1\r\nhost: {}\r\n\r\n", service.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        // Its download has begun.
        stream.readable().await.unwrap();
        stalled.push(stream);
    }
    let download = async { answer(service.get(OUTPUT)).await.bytes().await.unwrap() };
    let bytes = timeout(WITHIN, download).await.expect("the others have stopped reading");
    assert_eq!(bytes.len(), service::OUTPUT_BYTES);
}
