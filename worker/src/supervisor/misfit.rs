//! Jobs that require what no device here has, or more memory: passed on to the pool's other workers, and failed once none is left
//! to ask.
//!
//! A job that is passed on carries the devices of the workers that it has met. When these are all that serve its queue, or after a
//! bounded number of hops, it fails and says what was asked and what they have. A worker that fits may be too busy to be sent the
//! job, so meeting the same misfits again proves nothing.

use std::time::Duration;

use gpufleet_schema::{Failure, FailureCode, Requires, Verdict, bounds::HEADER_TEXT_BYTES_MAX, topology::task_queue};
use tokio::time::{sleep, timeout};

use super::{Supervisor, devices::DeviceSlot, envelope::Envelope};
use crate::{
    disposition::Ending,
    scheduler::{Allowed, TooLarge},
};

/// The first waits are a second each, the later ones five: some minutes, for a pool whose only fitting workers are busy or starting.
const HOPS_MAX: u32 = 40;
/// Where the broker does not answer, the hops alone decide.
const CONSUMERS_TOLD_WITHIN: Duration = Duration::from_secs(2);
/// A worker whose prefetch changes ends its subscription and makes a new one. That takes some round trips, and between them the broker
/// does not count it: before a job fails for good, it is asked again.
const COUNTED_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Between the workers in the list.
const SEPARATOR: &str = "; ";
/// In the place of a worker's devices.
const UNTOLD: &str = "…";

impl Supervisor {
    /// The devices that have what the job requires, and are in service.
    pub(super) fn allowed(&self, requires: &Requires) -> Allowed {
        self.devices.iter().filter(|slot| slot.is_in_service() && fits(requires, slot)).map(|slot| slot.id).collect()
    }

    /// What becomes of a job that no device here may run.
    pub(super) async fn misfit(&self, requires: &Requires, envelope: &Envelope) -> Ending {
        let fails = |met: &str| {
            let message = format!("no worker of the pool has {}; they have: {met}", asked(requires));
            Failure::new(Verdict::User, FailureCode::RequirementsNotMet, message)
        };
        self.pass_on(envelope, fails).await
    }

    /// What becomes of a job that no device here can hold.
    pub(super) async fn too_large(&self, too_large: TooLarge, buffers: u64, envelope: &Envelope) -> Ending {
        let TooLarge { bytes, device_bytes_max } = too_large;
        let fails = |met: &str| {
            let message = format!(
                "the job needs {bytes} bytes on the device, {buffers} of them for its buffers; the largest device here that it may \
                 run on has {device_bytes_max} for jobs, and no worker of the pool has a larger one; they have: {met}"
            );
            Failure::new(Verdict::OutOfMemory, FailureCode::OutOfMemory, message)
        };
        self.pass_on(envelope, fails).await
    }

    /// To another worker, or, where nobody is left to ask, to its end.
    async fn pass_on(&self, envelope: &Envelope, fails: impl FnOnce(&str) -> Failure) -> Ending {
        let met = met_with(&envelope.met, self.config.name.as_str(), &self.have());
        let queue = task_queue(&envelope.pool, envelope.priority);
        let hops = envelope.hops.saturating_add(1);
        match is_last(hops, &met, || self.consumers(&queue)).await {
            true => Ending::Failed(fails(&met)),
            false => Ending::Misfit { met, hops },
        }
    }

    async fn consumers(&self, queue: &str) -> Option<u32> {
        let depth = timeout(CONSUMERS_TOLD_WITHIN, self.broker.queue_depth(queue)).await;
        depth.ok().and_then(Result::ok).flatten().map(|depth| depth.consumers)
    }

    /// What the devices of this worker are, in a line.
    fn have(&self) -> String {
        together(self.devices.iter().map(describe))
    }
}

/// Whether nobody is left who could fit: every consumer of the queue has been met, now and a moment later, or it has gone round for
/// too long.
async fn is_last<F: Future<Output = Option<u32>>>(hops: u32, met: &str, consumers: impl Fn() -> F) -> bool {
    let all_met = |consumers: Option<u32>| consumers.is_some_and(|count| workers(met).count() >= count as usize);
    if hops >= HOPS_MAX {
        return true;
    }
    if !all_met(consumers().await) {
        return false;
    }
    sleep(COUNTED_AGAIN_AFTER).await;
    all_met(consumers().await)
}

fn workers(met: &str) -> impl Iterator<Item = &str> {
    met.split(SEPARATOR).filter_map(|worker| Some(worker.split_once(": ")?.0))
}

/// The list with this worker in it, by its name alone where its devices do not fit into a header. A name that does not fit either is
/// left out, and then the hops decide.
fn met_with(met: &str, worker: &str, have: &str) -> String {
    if workers(met).any(|known| known == worker) {
        return met.to_owned();
    }
    let separator = if met.is_empty() { "" } else { SEPARATOR };
    let with = |have: &str| format!("{met}{separator}{worker}: {have}");
    let longer = [with(&have.replace(';', ",")), with(UNTOLD)];
    longer.into_iter().find(|list| list.len() <= HEADER_TEXT_BYTES_MAX).unwrap_or_else(|| met.to_owned())
}

/// Equal devices once, with their number, in the order in which they come.
fn together(devices: impl Iterator<Item = String>) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for device in devices {
        match kinds.iter_mut().find(|(kind, _)| *kind == device) {
            Some((_, count)) => *count += 1,
            None => kinds.push((device, 1)),
        }
    }
    let kinds = kinds.into_iter().map(|(kind, count)| if count == 1 { kind } else { format!("{count} × {kind}") });
    kinds.collect::<Vec<_>>().join(" + ")
}

fn describe(slot: &DeviceSlot) -> String {
    let info = &slot.info;
    let (major, minor) = info.compute_capability;
    let sick = if slot.is_in_service() { "" } else { ", out of service" };
    format!("{} (compute capability {major}.{minor}, {} bytes{sick})", info.name, info.memory_bytes)
}

fn asked(requires: &Requires) -> String {
    let mut parts = Vec::new();
    parts.extend(requires.compute_capability_min.map(|[major, minor]| format!("compute capability {major}.{minor}")));
    parts.extend(requires.memory_bytes_min.map(|bytes| format!("{bytes} bytes of memory")));
    parts.extend(requires.device.as_ref().map(|name| format!("a device named like {name:?}")));
    if parts.is_empty() { "a device in service".to_owned() } else { parts.join(" and ") }
}

fn fits(requires: &Requires, slot: &DeviceSlot) -> bool {
    let info = &slot.info;
    let (major, minor) = info.compute_capability;
    requires.compute_capability_min.is_none_or(|least| [major, minor] >= least)
        && requires.memory_bytes_min.is_none_or(|least| info.memory_bytes >= least)
        && requires.device.as_ref().is_none_or(|part| info.name.to_lowercase().contains(&part.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_worker_stands_in_the_list_once_and_the_list_is_bounded() {
        let first = met_with("", "w1", "GPU; old");
        assert_eq!(first, "w1: GPU, old");
        assert_eq!(met_with(&first, "w1", "GPU"), first);
        let both = met_with(&first, "w2", "GPU");
        assert_eq!(workers(&both).collect::<Vec<_>>(), ["w1", "w2"]);
    }

    #[test]
    fn a_worker_whose_devices_do_not_fit_into_the_list_still_counts() {
        let large = "x".repeat(HEADER_TEXT_BYTES_MAX);
        let both = met_with("w1: GPU", "w2", &large);
        assert_eq!(both, "w1: GPU; w2: …");
        assert_eq!(met_with(&both, &large, "GPU"), both, "there is no room even for the name");
    }

    #[test]
    fn equal_devices_are_told_once() {
        let devices = |names: &[&str]| together(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(devices(&["H200", "L4", "H200", "H200"]), "3 × H200 + L4");
        assert_eq!(devices(&["L4"]), "L4");
    }

    #[tokio::test]
    async fn it_ends_when_all_consumers_were_met_or_after_many_hops() {
        let met = "w1: a; w2: b";
        assert!(is_last(2, met, async || Some(2)).await);
        assert!(!is_last(2, met, async || Some(3)).await);
        assert!(!is_last(20, met, async || None).await, "nobody knows who else is there");
        assert!(is_last(HOPS_MAX, met, async || Some(3)).await);
    }

    #[tokio::test]
    async fn a_worker_that_subscribes_anew_is_not_forgotten() {
        let counts = Mutex::new([Some(1), Some(2)].into_iter());
        assert!(!is_last(1, "w1: a", async || counts.lock().unwrap().next().unwrap()).await);
        assert_eq!(counts.lock().unwrap().next(), None, "it was counted twice");
    }
}
