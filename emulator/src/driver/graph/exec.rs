//! Executable graphs (`CUgraphExec`). A launch is one task of its stream: the nodes run one after the other, in an
//! order that respects the edges.

use std::{
    sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Instant,
};

use super::{
    Graph,
    plan::{Mismatch, Plan, Work, may_replace},
};
use crate::driver::{
    capture,
    context::Context,
    event,
    handle::{Handle, Registry, fresh},
    operation::Operation,
    started,
    status::{Answer, Status},
    stream,
};

/// Supported flags of `cuGraphInstantiate`: free on launch, upload, node priorities. Launch from a device, the fourth,
/// is not supported.
const FLAGS: u64 = 0b1011;
const DEVICE_LAUNCH: u64 = 0b0100;

/// An executable graph.
#[derive(Debug)]
pub struct Exec {
    pub flags: u64,
    /// The plan for later launches; a launch keeps the plan of its time.
    plan: Mutex<Arc<Plan>>,
}

/// Returns the registry of executable graphs.
pub fn execs() -> Answer<&'static Registry<Exec>> {
    static EXECS: LazyLock<Registry<Exec>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*EXECS)
}

/// Makes a graph executable.
pub fn instantiate(graph: &Arc<Graph>, flags: u64) -> Answer<Handle> {
    if flags & !(FLAGS | DEVICE_LAUNCH) != 0 || flags & DEVICE_LAUNCH != 0 && flags & !DEVICE_LAUNCH != 0 {
        return Err(Status::InvalidValue);
    }
    if flags & DEVICE_LAUNCH != 0 {
        return Err(Status::NotSupported);
    }
    let plan = Plan::of(graph)?;
    let handle = fresh();
    let exec = Exec { flags, plan: Mutex::new(Arc::new(plan)) };
    execs()?.insert(handle, Arc::new(exec));
    Ok(handle)
}

/// Returns the executable graph behind a handle.
pub fn find(exec: Handle) -> Answer<Arc<Exec>> {
    execs()?.get(exec).map_err(|_| Status::InvalidValue)
}

/// Removes the handle; launches in flight continue.
pub fn destroy(exec: Handle) -> Answer {
    execs()?.remove(exec).map(drop).map_err(|_| Status::InvalidValue)
}

/// Submits a graph to a stream as one piece of work, or adds it as a node if the stream is capturing.
pub fn launch(exec: Handle, stream: Handle) -> Answer {
    let exec = find(exec)?;
    let (context, stream) = stream::find(stream)?;
    let plan = Arc::clone(&exec.plan());
    if let Some(taken) = capture::of(&stream)? {
        let graph = plan.to_graph(false);
        let added = taken.add(Operation::Graph(Arc::clone(&graph)));
        graph.forget();
        return added.map(drop);
    }
    let (mut after, mut marks, mut checked) = (Vec::new(), Vec::new(), Ok(()));
    plan.for_each(&mut |work| match work {
        Operation::Wait(event) => after.extend(event::point(*event)),
        Operation::Record(event) => marks.push((*event, Arc::new(OnceLock::new()))),
        work => checked = checked.and_then(|()| work.context().map_or(Ok(()), |own| own.check())),
    });
    checked?;
    let times = marks.iter().map(|(_, time)| Arc::clone(time)).collect::<Vec<_>>();
    let runner = Arc::clone(&context);
    let point = context.enqueue_regardless(&stream, after, Box::new(move || run(&plan, &runner, &times)))?;
    marks.into_iter().try_for_each(|(event, time)| event::mark(event, point.clone(), time))
}

fn run(plan: &Plan, context: &Context, times: &[Arc<OnceLock<Instant>>]) {
    let mut times = times.iter();
    plan.for_each(&mut |work| match work {
        Operation::Record(_) => {
            let time = times.next().expect("there is a time for each event that the plan marks");
            time.get_or_init(Instant::now);
        }
        work => work.context().map_or(context, |own| &**own).run(|| work.perform()),
    });
}

impl Exec {
    /// Replaces a node's work for later launches.
    pub fn set_work(&self, node: Handle, work: Operation) -> Answer {
        let replacement = match work {
            Operation::Graph(child) => Work::Child(Plan::of(&child)?),
            work => Work::Single(work),
        };
        let mut plan = self.plan();
        let step = Arc::make_mut(&mut plan).step_mut(node).ok_or(Status::InvalidValue)?;
        match (&mut step.work, replacement) {
            (Work::Single(old), Work::Single(new)) if may_replace(old, &new) => *old = new,
            (Work::Child(old), Work::Child(new)) => old.update(&new).map_err(|_| Status::GraphExecUpdateFailure)?,
            _ => return Err(Status::InvalidValue),
        }
        Ok(())
    }

    /// Replaces a kernel node's work for later launches; the kernel stays cooperative or not.
    pub fn set_kernel(&self, node: Handle, work: Operation) -> Answer {
        let cooperative = {
            let mut plan = Plan::clone(&self.plan());
            match plan.step_mut(node).map(|step| &step.work) {
                Some(Work::Single(Operation::Kernel(kernel))) => kernel.request.cooperative,
                _ => return Err(Status::InvalidValue),
            }
        };
        let work = match work {
            Operation::Kernel(kernel) => Operation::Kernel(Arc::new(kernel.with_cooperative(cooperative)?)),
            work => work,
        };
        self.set_work(node, work)
    }

    /// Takes over the work of a graph of equal topology.
    pub fn update(&self, graph: &Arc<Graph>) -> Answer<Result<(), Mismatch>> {
        let new = Plan::of(graph)?;
        let mut plan = self.plan();
        Ok(Arc::make_mut(&mut plan).update(&new))
    }

    /// Enables or disables a node; only kernels, copies and fills can be disabled.
    pub fn set_enabled(&self, node: Handle, enabled: bool) -> Answer {
        let mut plan = self.plan();
        let step = Arc::make_mut(&mut plan).step_mut(node).ok_or(Status::InvalidValue)?;
        match step.work {
            Work::Single(Operation::Kernel(_) | Operation::Copy(_) | Operation::Fill(..)) => step.enabled = enabled,
            _ => return Err(Status::InvalidValue),
        }
        Ok(())
    }

    pub fn is_enabled(&self, node: Handle) -> Answer<bool> {
        let mut plan = Plan::clone(&self.plan());
        plan.step_mut(node).map(|step| step.enabled).ok_or(Status::InvalidValue)
    }

    fn plan(&self) -> MutexGuard<'_, Arc<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
