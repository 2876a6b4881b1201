//! The jobs that may start again because a running job is cancelled: its worker kills the executor of that job.

use std::time::Duration;

use gpufleet::schema::JobId;
use gpufleet_ledger::{Ledger, Neighbour};
use tokio::time::timeout;

use crate::{connection, options::LedgerOptions, output::visible};

/// Longest wait for the ledger. A cancellation does not need it, so it must not wait long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of jobs that are named.
const NAMED_MAX: usize = 5;

/// Connects to the ledger if it is there. Without it, the command only says less.
pub(super) async fn ledger(options: &LedgerOptions) -> Option<Ledger> {
    timeout(PATIENCE, connection::ledger(options)).await.ok()?.ok()
}

/// Returns the text about the neighbours of these jobs, if they have some.
pub(super) async fn told(ledger: &Ledger, jobs: &[JobId]) -> Option<String> {
    let asked = async {
        let mut neighbours = Vec::new();
        for job in jobs {
            // A job that the ledger does not have yet has no neighbours that it knows.
            neighbours.extend(ledger.neighbours(*job).await.unwrap_or_default());
        }
        neighbours
    };
    describe(jobs, timeout(PATIENCE, asked).await.ok()?)
}

/// The ledger knows the pool and device of a job, and not its executor, of which a pool may have several on a device.
fn describe(cancelled: &[JobId], mut neighbours: Vec<Neighbour>) -> Option<String> {
    neighbours.retain(|neighbour| !cancelled.contains(&neighbour.job_id));
    neighbours.sort_by_key(|neighbour| (std::cmp::Reverse(neighbour.running_us), neighbour.job_id));
    neighbours.dedup_by_key(|neighbour| neighbour.job_id);
    let jobs = match neighbours.len() {
        0 => return None,
        1 => "1 other job runs".to_owned(),
        count => format!("{count} other jobs run"),
    };
    let mut named: Vec<String> = neighbours.iter().take(NAMED_MAX).map(name).collect();
    if neighbours.len() > NAMED_MAX {
        named.push(format!("and {} more", neighbours.len() - NAMED_MAX));
    }
    let named = named.join(", ");
    Some(format!("{jobs} in the same pool on the same device; those in the same executor start again: {named}"))
}

fn name(neighbour: &Neighbour) -> String {
    match neighbour.name.as_ref().or(neighbour.kernel.as_ref()) {
        Some(name) => format!("{} ({})", neighbour.job_id, visible(name)),
        None => neighbour.job_id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(number: u8, name: Option<&str>, kernel: Option<&str>) -> Neighbour {
        Neighbour {
            job_id: id(number),
            name: name.map(str::to_owned),
            pool: None,
            kernel: kernel.map(str::to_owned),
            running_us: 1_000_000 - u64::from(number),
        }
    }

    fn id(number: u8) -> JobId {
        format!("01990f3e-0000-7000-8000-0000000000{number:02}").parse().unwrap()
    }

    #[test]
    fn the_jobs_beside_a_cancelled_one_are_named_once() {
        let both = || vec![neighbour(2, Some("train"), Some("saxpy")), neighbour(3, None, None)];
        assert_eq!(describe(&[id(1)], Vec::new()), None);
        assert_eq!(describe(&[id(2), id(3)], both()), None, "both are cancelled");
        let twice = [both(), both()].concat();
        let text = describe(&[id(1)], twice).unwrap();
        let ids = [id(2), id(3)];
        assert!(text.starts_with("2 other jobs run in the same pool"), "{text}");
        assert!(text.ends_with(&format!(": {} (train), {}", ids[0], ids[1])), "{text}");
        let many = (2..10).map(|number| neighbour(number, None, Some("saxpy"))).collect();
        let text = describe(&[id(1)], many).unwrap();
        assert!(text.ends_with(&format!("{} (saxpy), and 3 more", id(6))), "{text}");
    }
}
