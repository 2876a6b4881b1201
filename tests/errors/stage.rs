//! The fleet for the commands of one section.

use std::path::Path;

use gpufleet_ledger::{HistoryFilter, Ledger};
use gpufleet_schema::JobState;
use gpufleet_tests::{Ended, Ground, gpufleet_command, poll_until};

use crate::cases::{Cases, Masks};

pub struct Stage<'a> {
    pub ground: &'a Ground,
    pub folder: &'a Path,
    ledger: Ledger,
    masks: Masks,
}

impl<'a> Stage<'a> {
    pub async fn on(ground: &'a Ground, folder: &'a Path, masks: Masks) -> Self {
        let ledger = Ledger::connect(ground.endpoints().database_url.parse().unwrap()).await.unwrap();
        Self { ground, folder, ledger, masks }
    }

    pub fn hiding(self, secret: &str, shown: &str) -> Self {
        Self { masks: self.masks.hiding(secret, shown), ..self }
    }

    /// Runs lines in the format of a file of cases.
    pub async fn run(&self, lines: &str) -> String {
        Cases::read(lines).run(self.folder, &self.environment(), &self.masks).await
    }

    /// Runs a command that is not a case and must succeed.
    pub async fn prepare(&self, arguments: &[&str]) -> Ended {
        gpufleet_command(self.folder, &self.environment(), arguments).await.ok()
    }

    /// Waits until the job with the label `case=VALUE` is in a state.
    pub async fn poll_case(&self, value: &str, state: JobState) {
        let labels = vec![("case".to_owned(), value.to_owned())];
        let filter = HistoryFilter { states: vec![state], labels, ..HistoryFilter::default() };
        let what = format!("case {value} is {state}");
        poll_until(&what, async || !self.ledger.history(&filter).await.unwrap().jobs.is_empty()).await;
    }

    fn environment(&self) -> [(&str, &str); 3] {
        let endpoints = self.ground.endpoints();
        [
            ("GPUFLEET_AMQP_URL", endpoints.amqp_url.as_str()),
            ("GPUFLEET_DATABASE_URL", endpoints.database_url.as_str()),
            ("USER", "ben"),
        ]
    }
}
