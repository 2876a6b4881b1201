//! Explains why a host program waits: for a worker that runs them, or for a whole device. Shares of its pool do not delay it.

use gpufleet_schema::PoolPrograms;

use super::{Reason, Situation};
use crate::DeviceRow;

impl Situation<'_> {
    /// Collects the reasons, most fundamental first.
    pub(super) fn host_program_reasons(&self) -> Vec<Reason> {
        let reasons = [
            ("no_consumer", self.no_worker_for_program()),
            ("no_programs", self.no_programs()),
            ("no_environment", self.no_environment()),
            ("retry_due", self.retry_due()),
            ("devices_in_use", self.devices_in_use()),
        ];
        let found = reasons.into_iter().filter_map(|(reason, text)| Some(Reason::new(reason, text?)));
        let found: Vec<Reason> = found.collect();
        if found.is_empty() { vec![Reason::new("device", self.no_known_obstacle())] } else { found }
    }

    fn no_worker_for_program(&self) -> Option<String> {
        let pool = self.pool();
        let is_served = self.has_program_consumers() == Some(true) || self.workers().next().is_some();
        (!is_served).then(|| {
            format!(
                "no worker serves pool {pool}{}; to start one that runs host programs: \
                 gpufleet-worker run --pool {pool}:programs=1 --environment NAME=FOLDER",
                self.programs_in_queue()
            )
        })
    }

    fn no_programs(&self) -> Option<String> {
        let pool = self.pool();
        let runs_none = self.has_program_consumers() == Some(false) && self.workers().next().is_some();
        runs_none.then(|| {
            format!(
                "no worker of pool {pool} runs host programs; start one with --pool {pool}:programs=1: \
                 gpufleet-worker run --pool {pool}:programs=1 --environment NAME=FOLDER"
            )
        })
    }

    /// Explains that a worker which gets the program refuses it, because it has another environment or image. Workers of earlier releases
    /// do not say what they offer.
    fn no_environment(&self) -> Option<String> {
        let program = self.detail.job.host_program.as_ref()?;
        let (pool, wanted) = (self.pool(), program.place()?);
        let mut offered: Vec<&str> =
            self.workers().filter_map(|worker| worker.programs_of(pool)).flat_map(PoolPrograms::places).collect();
        offered.sort_unstable();
        offered.dedup();
        let (kind, option) = match program.image {
            Some(_) => ("image", format!("--image {wanted}")),
            None => ("environment", format!("--environment {wanted}=FOLDER")),
        };
        (!offered.is_empty() && !offered.contains(&wanted)).then(|| {
            format!(
                "no worker of pool {pool} has the {kind} {wanted}; they have {}; a worker that takes the program refuses it, unless one \
                 is started with {option} before",
                offered.join(", "),
            )
        })
    }

    fn devices_in_use(&self) -> Option<String> {
        if self.has_program_consumers() == Some(false) {
            return None;
        }
        let devices = self.workers().flat_map(|worker| &worker.devices);
        let mut in_service = devices.filter(|device| device.out_of_service.is_none()).peekable();
        in_service.peek()?;
        in_service.all(is_in_use).then(|| {
            format!(
                "each device of pool {} is in use{}; a host program takes a whole device, so it starts when the jobs and \
                 sessions of one have ended",
                self.pool(),
                self.programs_in_queue()
            )
        })
    }

    /// What is known if nothing known keeps the program.
    fn no_known_obstacle(&self) -> String {
        if let Some(text) = self.just_submitted() {
            return text;
        }
        let (id, pool) = (self.detail.job.job_id, self.pool());
        match self.depth {
            None => format!("the ledger names no reason; `gpufleet why {id}` asks the broker too"),
            Some(_) => format!(
                "it waits for a whole device of pool {pool}{}; it still waits if no free device meets its requirements, or if \
                 its worker runs as many host programs as the pool allows (pool option `programs`)",
                self.programs_in_queue()
            ),
        }
    }

    /// Returns whether a worker reads the queue of host programs; none if the broker was not asked.
    fn has_program_consumers(&self) -> Option<bool> {
        self.depth.map(|depth| depth.consumers > 0)
    }

    /// Returns what else waits, as the end of a clause.
    fn programs_in_queue(&self) -> String {
        match self.depth.map(|depth| depth.messages) {
            None | Some(0) => String::new(),
            Some(1) => ", and 1 host program waits in its queue".to_owned(),
            Some(many) => format!(", and {many} host programs wait in its queue"),
        }
    }
}

fn is_in_use(device: &DeviceRow) -> bool {
    let has_sessions = device.pools.iter().any(|pool| pool.sessions.is_some_and(|sessions| sessions.open > 0));
    device.jobs_running.unwrap_or_default() > 0 || has_sessions
}
