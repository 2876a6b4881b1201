//! A running HTTP server: `gpufleet-ledger serve` or `gpufleet-console`.

use std::process::Stdio;

use gpufleet_local::programs;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

use crate::{Ground, WAIT};

/// The server. Its process ends when this is dropped.
#[derive(Debug)]
pub struct HttpService {
    pub url: String,
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Ground {
    /// Serves this fleet's ledger, with additional environment variables.
    pub async fn serve_ledger(&self, environment: &[(&str, &str)]) -> HttpService {
        let mut command = Command::new(programs::ours(None, "gpufleet-ledger").unwrap());
        command.args(["serve", "--listen", "127.0.0.1:0"]).envs(environment.iter().copied());
        command.env("GPUFLEET_DATABASE_URL", &self.endpoints().database_url);
        HttpService::start(command).await
    }

    /// Serves the console of this fleet, whose viewers may act.
    pub async fn serve_console(&self, api: &HttpService, token: &str) -> HttpService {
        self.serve_console_as(api, token, &self.endpoints().amqp_url).await
    }

    /// Serves a console that connects to the broker with this URL.
    pub async fn serve_console_as(&self, api: &HttpService, token: &str, amqp_url: &str) -> HttpService {
        let mut command = Command::new(programs::ours(None, "gpufleet-console").unwrap());
        command.args(["--listen", "127.0.0.1:0", "--actions", "--api", &api.url]).env("GPUFLEET_API_TOKEN", token);
        command.env("GPUFLEET_AMQP_URL", amqp_url);
        HttpService::start(command).await
    }
}

impl HttpService {
    /// Starts a program that logs its address.
    async fn start(mut command: Command) -> Self {
        command.env("GPUFLEET_LOG", "info").stderr(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = async {
            while let Some(line) = log.next_line().await.unwrap() {
                if let Some((_, rest)) = line.split_once("address=") {
                    return rest.split(' ').next().unwrap().to_owned();
                }
            }
            panic!("the server ended");
        };
        let address = tokio::time::timeout(WAIT, address).await.expect("the server starts");
        Self { url: format!("http://{address}"), process, log }
    }

    /// Stops the server, and returns its exit code and the rest of its log.
    pub async fn stop(mut self) -> (Option<i32>, String) {
        let pid = self.process.id().expect("the server runs");
        crate::signal(pid, libc::SIGTERM);
        let rest = async {
            let mut text = String::new();
            while let Some(line) = self.log.next_line().await.unwrap() {
                text += &line;
            }
            (self.process.wait().await.unwrap().code(), text)
        };
        tokio::time::timeout(WAIT, rest).await.expect("the server stops")
    }
}
