//! Jobs that require what no device here has, or more memory, or a blob store where there is none: passed on to the pool's other workers, and failed once none is left
//! to ask.
//!
//! A job that is passed on carries its way. When it has met all that serve its queue, or after a bounded number of hops that led to
//! nobody new, it fails and says what was asked and what they have. A worker that fits may be too busy to be sent the job, so meeting
//! the same misfits again proves nothing: after some quick rounds the job waits before it tries anew.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use gpufleet_schema::{
    Failure, FailureCode, Requires, Task, Verdict,
    topology::{Rung, retry_rung, task_queue},
};
use tokio::time::sleep;

use super::{Supervisor, devices::DeviceSlot, envelope::Envelope};
use crate::{
    blobs,
    disposition::Ending,
    scheduler::{Allowed, TooLarge},
    way::Way,
};

/// About two minutes, for a pool whose only fitting workers are busy or starting.
const STRAY_HOPS_MAX: u32 = 40;
/// The first of them come after the shortest wait.
const SHORT_WAITS: u32 = 3;
/// A worker whose prefetch changes ends its subscription and makes a new one. That takes some round trips, and between them the broker
/// does not count it: before a job fails for good, it is asked again.
const COUNTED_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl Supervisor {
    /// The devices that have what the job requires, and are in service.
    pub(super) fn allowed(&self, requires: &Requires) -> Allowed {
        self.devices.iter().filter(|slot| slot.is_in_service() && fits(requires, slot)).map(|slot| slot.id).collect()
    }

    /// What becomes of a job that no device here may run.
    pub(super) async fn misfit(&self, task: &Task<'_>, envelope: &Envelope) -> Ending {
        let fails = |met: &str| {
            let message = format!("no worker of the pool has {}; they have: {met}", asked(&task.requires));
            Failure::new(Verdict::User, FailureCode::RequirementsNotMet, message)
        };
        self.pass_on(envelope, fails).await
    }

    /// What becomes of a job that brings or returns arrays by a blob store, where this worker has none.
    pub(super) async fn without_store(&self, envelope: &Envelope) -> Ending {
        let fails = |met: &str| {
            let message = format!(
                "the task needs a blob store, and no worker of the pool has one (--blobs or GPUFLEET_BLOBS names its folder); their devices: {met}"
            );
            blobs::unavailable(message)
        };
        self.pass_on(envelope, fails).await
    }

    /// What becomes of a job that no device here can hold.
    pub(super) async fn too_large(&self, too_large: TooLarge, task: &Task<'_>, envelope: &Envelope) -> Ending {
        let TooLarge { bytes, device_bytes_max } = too_large;
        let buffers = task.device_bytes().expect("the check has added them up");
        let fails = |met: &str| {
            let message = format!(
                "the job needs {bytes} bytes on the device, {buffers} of them for its buffers; the largest device here that it may \
                 run on has {device_bytes_max} for jobs, and no worker of the pool has a larger one; they have: {met}"
            );
            Failure::new(Verdict::OutOfMemory, FailureCode::OutOfMemory, message)
        };
        self.pass_on(envelope, fails).await
    }

    /// To another worker, or, where nobody is left to ask, to its end. A worker that leaves, as it does without any device in service, has
    /// nothing to say any more: the broker may not count it.
    async fn pass_on(&self, envelope: &Envelope, fails: impl FnOnce(&str) -> Failure) -> Ending {
        let mut way = envelope.way.clone();
        way.meet(self.config.name.as_str(), &self.have());
        let queue = task_queue(&envelope.pool, envelope.priority);
        let is_last = is_last(&mut way, || self.consumers(&queue)).await;
        if !self.devices.iter().any(DeviceSlot::is_in_service) {
            self.leaving.cancelled().await;
        }
        if self.leaving.is_cancelled() {
            return Ending::HandedBack;
        }
        match is_last {
            true => Ending::Failed(fails(&way.fleet())),
            false => Ending::Misfit { wait: wait(way.stray_hops(), RandomState::new().hash_one(())), way },
        }
    }

    async fn consumers(&self, queue: &str) -> Option<u32> {
        let ask = async { self.broker.queue_depth(queue).await.ok().flatten().map(|depth| depth.consumers) };
        self.census.consumers(queue, ask).await
    }

    /// What the devices of this worker are, in a line.
    fn have(&self) -> String {
        together(self.devices.iter().map(describe))
    }
}

/// Whether nobody is left who could fit: every consumer of the queue has been met, now and a moment later, or it strays for too long.
async fn is_last<F: Future<Output = Option<u32>>>(way: &mut Way, consumers: impl Fn() -> F) -> bool {
    if way.stray_hops() >= STRAY_HOPS_MAX {
        return true;
    }
    if !has_met_all(way, consumers().await) {
        return false;
    }
    sleep(COUNTED_AGAIN_AFTER).await;
    has_met_all(way, consumers().await)
}

fn has_met_all(way: &mut Way, consumers: Option<u32>) -> bool {
    let Some(consumers) = consumers else { return false };
    way.count(consumers);
    way.has_met_all()
}

/// The queue goes to its consumers in turn. Jobs that all waited equally long would come back in the same order, each to the worker
/// that it came from, so the dice decide how long one waits: not its id, for the same job may go round twice.
fn wait(stray_hops: u32, dice: u64) -> Option<Rung> {
    (stray_hops > 0).then(|| retry_rung(if stray_hops <= SHORT_WAITS || dice.is_multiple_of(4) { 1 } else { 2 }))
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
    fn equal_devices_are_told_once() {
        let devices = |names: &[&str]| together(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(devices(&["H200", "L4", "H200", "H200"]), "3 × H200 + L4");
        assert_eq!(devices(&["L4"]), "L4");
    }

    #[tokio::test]
    async fn it_ends_when_all_consumers_were_met_or_after_many_hops_to_nobody_new() {
        let mut way = Way::default();
        way.meet("w1", "GPU");
        assert!(is_last(&mut way.clone(), async || Some(1)).await);
        assert!(!is_last(&mut way, async || Some(2)).await);
        assert!(!is_last(&mut way, async || None).await, "nobody knows who else is there");
        while way.stray_hops() < STRAY_HOPS_MAX {
            assert!(!is_last(&mut way, async || Some(2)).await);
            way.meet("w1", "GPU");
        }
        assert!(is_last(&mut way, async || Some(2)).await);
    }

    #[test]
    fn how_long_a_job_waits_is_for_the_dice_after_the_first_waits() {
        let waits = |hops| [0, 1, 2, 3].map(|dice| wait(hops, dice).map_or(0, |rung| rung.seconds));
        assert_eq!(waits(0), [0; 4]);
        assert_eq!(waits(SHORT_WAITS), [1; 4]);
        assert_eq!(waits(SHORT_WAITS + 1), [1, 5, 5, 5]);
    }

    #[tokio::test]
    async fn a_worker_that_subscribes_anew_is_not_forgotten() {
        let counts = Mutex::new([Some(1), Some(2)].into_iter());
        let mut way = Way::default();
        way.meet("w1", "GPU");
        assert!(!is_last(&mut way, async || counts.lock().unwrap().next().unwrap()).await);
        assert_eq!(counts.lock().unwrap().next(), None, "it was counted twice");
    }
}
