//! A prepared job, which waits for a slot.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::Task;
use self_cell::self_cell;
use tokio::sync::OwnedSemaphorePermit;

use super::{content::JobContent, envelope::Envelope};
use crate::{
    compiler::{Compiled, Compiler, Target},
    executor::ProgramKey,
    scheduler::Demand,
};

/// A job that is ready to run once it gets a slot.
pub(super) struct Ready {
    pub(super) resolved: Resolved,
    /// Whether its inputs or outputs use the blob store.
    pub(super) needs_store: bool,
    /// The size of its outputs and printed text in a reply, in bytes.
    pub(super) reply_bytes: u64,
    pub(super) time_limit: Duration,
    pub(super) demand: Demand,
    /// The key of its program, if all devices that it may use run the same code.
    pub(super) program: Option<ProgramKey>,
    pub(super) programs: CompiledPrograms,
}

/// The task with its catalog kernel resolved; `None` if the task does not name one.
pub(super) type OfCatalog<'a> = Option<Box<Task<'a>>>;

self_cell!(
    pub(super) struct Resolved {
        owner: JobContent,
        #[covariant]
        dependent: OfCatalog,
    }
);

impl Resolved {
    pub(super) fn task(&self) -> &Task<'_> {
        match self.borrow_dependent() {
            Some(task) => task,
            None => self.borrow_owner().task(),
        }
    }
}

impl Ready {
    /// Returns the task, with a catalog kernel resolved.
    pub(super) fn task(&self) -> &Task<'_> {
        self.resolved.task()
    }

    pub(super) fn envelope(&self) -> &Envelope {
        self.resolved.borrow_owner().envelope()
    }

    pub(super) fn is_in_list(&self) -> bool {
        self.resolved.borrow_owner().message.is_list()
    }
}

/// The programs compiled from a job's source, one for each target, with the compile time in microseconds; zero for cached programs.
#[derive(Debug, Default)]
pub(super) struct CompiledPrograms {
    pub(super) compiled: Vec<(Target, Arc<Compiled>)>,
    pub(super) micros: u64,
    /// The reserved memory, held as long as the job holds the programs.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

impl CompiledPrograms {
    /// Reserves memory for the programs while the job waits. If waiting jobs already hold too much, drops the programs.
    pub(super) fn taken(mut self, compiler: &Compiler) -> Self {
        self.room = compiler.room_for(self.compiled.iter().map(|(_, compiled)| &**compiled));
        if self.room.is_none() {
            self.compiled.clear();
        }
        self
    }

    pub(super) fn of(&self, target: Target) -> Option<&Compiled> {
        self.compiled.iter().find(|(of, _)| *of == target).map(|(_, compiled)| &**compiled)
    }
}
