//! The workers by their heartbeats in the ledger.

use gpufleet_ledger::{WorkerRow, WorkerState};

use super::finding::Finding;

const CHECK: &str = "workers";
/// More names than these do not help.
const NAMED_MAX: usize = 5;

/// `workers` are those of the last days. An error is the reason why they are unknown.
pub fn judge(workers: Result<&Vec<WorkerRow>, &String>) -> Finding {
    let workers = match workers {
        Ok(workers) => workers,
        Err(why) => return Finding::skipped(CHECK, why.clone()),
    };
    let of = |state| workers.iter().filter(move |worker| worker.state() == state);
    let up = of(WorkerState::Up).count();
    let silent: Vec<&str> = of(WorkerState::Silent).map(|worker| worker.worker.as_str()).collect();
    let sick: Vec<String> = of(WorkerState::Up).flat_map(sick_devices).collect();
    match (up, silent.as_slice(), sick.as_slice()) {
        (0, [], _) => Finding::error(CHECK, "no worker is up").fix("start one: gpufleet-worker run"),
        (0, silent, _) => Finding::error(CHECK, format!("no worker is up; silent: {}", named(silent))).fix(
            "check that they and the recorder run; a worker that was stopped for good is forgotten after three days",
        ),
        (up, [], []) => Finding::ok(CHECK, format!("{up} up")),
        (up, [], sick) => Finding::warning(CHECK, format!("{up} up, but out of service: {}", sick.join(", ")))
            .fix("`gpufleet workers` shows the reasons; repair the device and restart its worker"),
        (up, silent, _) => Finding::warning(CHECK, format!("{up} up, but silent: {}", named(silent)))
            .fix("restart them; a worker that was stopped for good is forgotten after three days"),
    }
}

fn sick_devices(worker: &WorkerRow) -> impl Iterator<Item = String> {
    let sick = worker.devices.iter().filter(|device| device.out_of_service.is_some());
    sick.map(|device| format!("device {} of {}", device.device, worker.worker))
}

fn named(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::workers::tests::worker, finding::Status},
        *,
    };

    #[test]
    fn silent_workers_and_sick_devices_are_warnings_and_no_worker_is_an_error() {
        let up = worker("w1", 1, false);
        let silent = WorkerRow { is_silent: true, ..worker("w2", 1, false) };
        let mut sick = worker("w3", 1, false);
        sick.devices[0].out_of_service = Some("it failed".to_owned());
        let judged = |workers: &[&WorkerRow]| judge(Ok(&workers.iter().map(|worker| (*worker).clone()).collect()));
        assert_eq!(judged(&[&up]), Finding::ok(CHECK, "1 up"));
        assert_eq!(judged(&[&up, &silent]).status, Status::Warning);
        assert!(judged(&[&up, &sick]).found.contains("device 0 of w3"));
        assert_eq!(judged(&[&silent]).status, Status::Error);
        assert_eq!(judged(&[]).status, Status::Error);
        assert_eq!(judge(Err(&"no ledger".to_owned())).status, Status::Skipped);
    }
}
