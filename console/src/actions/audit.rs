//! The record of each action: one line in the log, and one row in the ledger for each job or letter.

use std::net::SocketAddr;

use futures::{StreamExt as _, stream};
use gpufleet_service::{chain, problem::Problem};
use tracing::{info, warn};

use crate::{access::Viewer, feed::Feed};

/// Each report waits for the broker's confirm.
const REPORTS_AT_ONCE: usize = 32;

/// Who acts, and from where.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) viewer: Viewer,
    pub(super) peer: SocketAddr,
}

impl Actor {
    /// Writes one line to the log, also for an action that failed.
    pub(super) fn log(&self, action: &str, targets: &[String], problem: Option<&Problem>) {
        let ids = targets.join(" ");
        let detail = problem.map(|problem| problem.detail.as_ref());
        let (viewer, from) = (&self.viewer.name, self.peer.ip());
        info!(target: "gpufleet_console::audit", viewer, %from, action, ids, problem = detail, "action");
    }

    /// Sends a row for each target to the ledger, for `gpufleet actions`.
    pub(super) async fn report(&self, feed: &Feed, action: &str, targets: &[String]) {
        if targets.is_empty() {
            return;
        }
        let Ok(fleet) = feed.broker().fleet() else {
            warn!(action, ids = targets.join(" "), "action not reported to the ledger, because the broker is away");
            return;
        };
        let from = self.peer.ip().to_string();
        let reports = targets.iter().cloned().map(|target| {
            let (fleet, who, from) = (fleet.clone(), self.viewer.name.clone(), from.clone());
            async move { fleet.report_action(&who, action, &target, Some(&from)).await }
        });
        let mut reports = stream::iter(reports).buffer_unordered(REPORTS_AT_ONCE);
        while let Some(reported) = reports.next().await {
            if let Err(error) = reported {
                warn!(error = %chain(&error), "action not reported to the ledger");
            }
        }
    }
}
