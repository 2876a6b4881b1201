//! An HTTP client that sends arbitrary bytes, including requests that no library would send.

use std::net::SocketAddr;

use gpufleet_ledger::{
    DatabaseUrl, Ledger,
    api::{self, LAG_MAX_DEFAULT, Tokens},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

/// A server of a ledger. It ends with the test.
pub struct Served {
    address: SocketAddr,
    stop: CancellationToken,
}

/// A response, with the names of its headers in lower case.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Served {
    pub async fn open(url: DatabaseUrl) -> Self {
        Self::with(url, Tokens::default(), LAG_MAX_DEFAULT).await
    }

    pub async fn with(url: DatabaseUrl, tokens: Tokens, lag_max: std::time::Duration) -> Self {
        let (listener, address) = api::server::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(api::server::serve(listener, api::pages(Ledger::pooled(url, 4), tokens, lag_max), stop.clone()));
        Self { address, stop }
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request("GET", path, "").await
    }

    /// Sends a request and returns the response. `headers` are whole lines.
    pub async fn request(&self, method: &str, path: &str, headers: &str) -> Response {
        let host = self.address;
        self.send(format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n").as_bytes())
            .await
    }

    pub async fn send(&self, request: &[u8]) -> Response {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before it has read everything.
        stream.write_all(request).await.ok();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.ok();
        Response::of(&String::from_utf8(bytes).unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Response {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Self { status: status.unwrap_or(0), headers, body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the kind of the problem in the body.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        for field in ["title", "detail", "next"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {problem}");
        }
        problem["type"].as_str().unwrap().trim_start_matches("gpufleet:").to_owned()
    }
}
