//! Forwards jobs that no device here can run, or fails them if no worker can.
//!
//! [`crate::forwarding`] makes the decisions; this module queries the broker and builds the failure messages.

use std::hash::{BuildHasher as _, RandomState};

use gpufleet_schema::{
    ClassKey, DeviceClass, Failure, FailureCode, PoolName, Priority, Requires, Task, Verdict,
    topology::{forwarded_queue, retry_rung, task_queue},
};
use gpufleet_transport::QueueDepth;

use super::{Supervisor, devices::WorkerDevice, envelope::Envelope, task_queue::Route};
use crate::{
    blobs,
    config::ByteSize,
    dispatcher::Unfit,
    disposition::Ending,
    forwarding::{Candidate, Destination, ForwardingHistory, Need, Outlook, choose, describe, wait, wait_of_session},
    scheduler::{Allowed, DemandTooLarge},
};

impl Supervisor {
    /// Returns the devices in service that meet the job's requirements.
    pub(super) fn allowed(&self, requires: &Requires) -> Allowed {
        let fits = |device: &&WorkerDevice| device.is_in_service() && device.class.meets(requires);
        self.devices.iter().filter(fits).map(|device| device.id).collect()
    }

    /// Returns the classes of the devices in service, each once.
    pub(super) fn own_classes(&self) -> Vec<DeviceClass> {
        let mut classes: Vec<DeviceClass> = Vec::new();
        for device in self.devices.iter().filter(|device| device.is_in_service()) {
            if !classes.contains(&device.class) {
                classes.push(device.class.clone());
            }
        }
        classes
    }

    /// Forwards a job whose requirements no device here meets.
    pub(super) async fn unmet_requirements(&self, task: &Task<'_>, needs_store: bool, envelope: &Envelope) -> Ending {
        let requires = task.needs();
        let need = Need { requires: &requires, blob_store: needs_store, memory_bytes_min: 0 };
        let fails = |fleet: &str| {
            let message = format!("no worker of the pool has {need}; available: {fleet}");
            Failure::new(Verdict::User, FailureCode::RequirementsNotMet, message)
        };
        Box::pin(self.forward(need, envelope, fails)).await
    }

    /// Forwards a job that needs a blob store if this worker has none.
    pub(super) async fn without_store(&self, task: &Task<'_>, envelope: &Envelope) -> Ending {
        let requires = task.needs();
        let need = Need { requires: &requires, blob_store: true, memory_bytes_min: 0 };
        let fails = |fleet: &str| {
            blobs::unavailable(format!(
                "the task needs a blob store, but no worker of the pool has both a blob store (--blobs or GPUFLEET_BLOBS) and a device that \
                 meets the requirements; available: {fleet}"
            ))
        };
        Box::pin(self.forward(need, envelope, fails)).await
    }

    /// Forwards a job that fits no device here: to larger devices, or to devices of the same size on other workers, which may have slightly
    /// more free memory.
    pub(super) async fn too_large(
        &self,
        too_large: DemandTooLarge,
        task: &Task<'_>,
        needs_store: bool,
        envelope: &Envelope,
    ) -> Ending {
        let DemandTooLarge { bytes, device_bytes_max } = too_large;
        let buffers = task.device_bytes().expect("the check has added them up");
        let requires = task.needs();
        let allowed = self.allowed(&requires);
        let here =
            self.devices.iter().filter(|device| allowed.has(device.id)).map(|device| device.class.memory_bytes).max();
        let memory_bytes_min = bytes.max(here.unwrap_or(0));
        let need = Need { requires: &requires, blob_store: needs_store, memory_bytes_min };
        let fails = |fleet: &str| {
            let message = format!(
                "the job needs {bytes} bytes of device memory ({buffers} of them for its buffers); the largest suitable device of this \
                 worker has {device_bytes_max} for jobs, and no worker of the pool has a larger one; available: {fleet}"
            );
            Failure::new(Verdict::OutOfMemory, FailureCode::OutOfMemory, message)
        };
        Box::pin(self.forward(need, envelope, fails)).await
    }

    /// Lets another worker of the pool have a session or a host program for which this one has no device or no memory, or fails it.
    pub(super) fn session_elsewhere(&self, unfit: Unfit, task: &Task<'_>, envelope: &Envelope) -> Ending {
        let (history, pool) = (envelope.forwarding, &self.pool_spec(envelope).name);
        if self.leaving.is_cancelled() {
            return Ending::HandedBack;
        }
        let requires = task.needs();
        let asked = task.limits.memory_bytes_max.unwrap_or(0);
        let need = Need { requires: &requires, blob_store: false, memory_bytes_min: asked };
        let own = self.own_classes();
        let others_fit = || self.orders.roster().fitting(pool, need).iter().any(|class| !own.contains(class));
        let message = match unfit {
            Unfit::NoRoom => {
                return Ending::Forwarded { history: history.forwarded(), to: Destination::Later(retry_rung(1)) };
            }
            Unfit::NoDevice => {
                let what = if envelope.route == Route::Program { "runs host programs" } else { "takes sessions" };
                format!("no worker of pool {pool} that {what} has {need}")
            }
            Unfit::TooLarge(DemandTooLarge { bytes, device_bytes_max }) => format!(
                "the session asks for {}, but the devices of this worker give sessions of pool {pool} at most {} (session-memory=); ask \
                 for less",
                ByteSize(asked),
                ByteSize(device_bytes_max.saturating_sub(bytes - asked))
            ),
        };
        if let Some(rung) = wait_of_session(history, others_fit()) {
            return Ending::Forwarded { history: history.waited(), to: Destination::Later(rung) };
        }
        let (verdict, code) = match unfit {
            Unfit::TooLarge(_) => (Verdict::OutOfMemory, FailureCode::OutOfMemory),
            Unfit::NoDevice | Unfit::NoRoom => (Verdict::User, FailureCode::RequirementsNotMet),
        };
        Ending::Failed(Failure::new(verdict, code, message))
    }

    async fn forward(&self, need: Need<'_>, envelope: &Envelope, fails: impl FnOnce(&str) -> Failure) -> Ending {
        if !self.devices.iter().any(WorkerDevice::is_in_service) {
            self.leaving.cancelled().await;
        }
        // A draining worker makes no more decisions, but hands the job back.
        if self.leaving.is_cancelled() {
            return Ending::HandedBack;
        }
        let (pool, history) = (&self.pool_spec(envelope).name, envelope.forwarding);
        let fitting = self.orders.roster().fitting(pool, need);
        let has_fitting = !fitting.is_empty();
        let candidates = self.candidates(pool, envelope.priority, fitting).await;
        if let Some(class) = choose(&candidates, history, RandomState::new().hash_one(())) {
            return Ending::Forwarded { history: history.forwarded(), to: Destination::Class(class) };
        }
        let classes = self.orders.roster().classes(pool);
        let known = self.survey(pool, envelope.priority, classes).await;
        let is_open = has_fitting || self.has_unknown_workers(pool, envelope.priority, &known).await;
        let outlook = if is_open { Outlook::Open } else { Outlook::Closed };
        self.waits_or_fails(history, outlook, &known, fails)
    }

    fn waits_or_fails(
        &self,
        history: ForwardingHistory,
        outlook: Outlook,
        known: &[(DeviceClass, QueueDepth)],
        fails: impl FnOnce(&str) -> Failure,
    ) -> Ending {
        if let Some(rung) = wait(history, outlook) {
            return Ending::Forwarded { history: history.waited(), to: Destination::Later(rung) };
        }
        let workers: Vec<_> = known.iter().map(|(class, depth)| (class.clone(), depth.consumers)).collect();
        Ending::Failed(fails(&describe(&workers)))
    }

    async fn candidates(&self, pool: &PoolName, priority: Priority, fitting: Vec<DeviceClass>) -> Vec<Candidate> {
        let own: Vec<ClassKey> = self.own_classes().iter().map(|class| class.key).collect();
        let surveyed = self.survey(pool, priority, fitting).await;
        let candidate = |(class, depth): (DeviceClass, QueueDepth)| {
            let is_own = own.contains(&class.key);
            let consumers = depth.consumers.saturating_sub(u32::from(is_own));
            Candidate { class: class.key, messages: depth.messages, consumers, is_own }
        };
        surveyed.into_iter().map(candidate).collect()
    }

    /// Queries the depths of these classes' queues. A queue without an answer counts as having no consumers.
    async fn survey(
        &self,
        pool: &PoolName,
        priority: Priority,
        classes: Vec<DeviceClass>,
    ) -> Vec<(DeviceClass, QueueDepth)> {
        let mut surveyed = Vec::with_capacity(classes.len());
        for class in classes {
            let depth = self.depth(&forwarded_queue(pool, class.key, priority)).await;
            surveyed.push((class, depth.unwrap_or(QueueDepth { messages: 0, consumers: 0 })));
        }
        surveyed
    }

    /// Returns whether the pool has workers that have not announced a class, for example workers of an older version.
    async fn has_unknown_workers(
        &self,
        pool: &PoolName,
        priority: Priority,
        known: &[(DeviceClass, QueueDepth)],
    ) -> bool {
        let all = self.depth(&task_queue(pool, priority)).await;
        let known: u32 = known.iter().map(|(_, depth)| depth.consumers).sum();
        all.is_none_or(|all| all.consumers > known)
    }

    /// Returns the depth of a queue, or `None` if the broker does not answer.
    pub(super) async fn depth(&self, queue: &str) -> Option<QueueDepth> {
        let none = QueueDepth { messages: 0, consumers: 0 };
        let ask = async { self.broker.queue_depth(queue).await.ok().map(|depth| depth.unwrap_or(none)) };
        self.census.depth(queue, ask).await
    }
}
