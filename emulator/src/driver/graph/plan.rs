//! Plans: the nodes of a graph in the order in which they run, with the plans of child graphs inlined.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Graph, Node, user_object::UserObject};
use crate::driver::{
    handle::{Handle, fresh},
    operation::Operation,
    status::{Answer, Status},
};

/// A graph as it was when it was instantiated.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Each step comes after all that it depends on.
    pub steps: Vec<Step>,
    /// User objects of the graph, kept alive by the plan.
    objects: Vec<Arc<UserObject>>,
}

/// A node of a plan.
#[derive(Debug, Clone)]
pub struct Step {
    pub node: Handle,
    /// Indices of the steps that it depends on, sorted.
    after: Vec<usize>,
    pub enabled: bool,
    pub work: Work,
}

#[derive(Debug, Clone)]
pub enum Work {
    Single(Operation),
    Child(Plan),
}

/// The reason why a plan can't replace another (a number of `CUgraphExecUpdateResult`), with the step's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    pub result: u32,
    pub node: Handle,
}

const TOPOLOGY_CHANGED: u32 = 2;
const KIND_CHANGED: u32 = 3;
const PARAMETERS_CHANGED: u32 = 5;

impl Plan {
    /// Orders a graph: among the nodes that are ready, the one that was added first comes first. A graph with a cycle
    /// is an error.
    pub fn of(graph: &Arc<Graph>) -> Answer<Self> {
        let nodes = graph.handles().into_iter().map(|handle| Ok((handle, graph.node(handle)?)));
        let mut left = nodes.collect::<Answer<BTreeMap<_, _>>>()?;
        let mut places = BTreeMap::new();
        let mut steps = Vec::new();
        while !left.is_empty() {
            let ready = |known: &Vec<Handle>| known.iter().all(|handle| places.contains_key(handle));
            let next = left.iter().find(|(_, node)| ready(&node.dependencies)).map(|(handle, _)| *handle);
            let handle = next.ok_or(Status::InvalidValue)?;
            let node = left.remove(&handle).expect("the node was just found");
            let after = node.dependencies.iter().map(|known| places[known]).collect::<BTreeSet<usize>>();
            places.insert(handle, steps.len());
            let work = match node.work {
                Operation::Graph(child) => Work::Child(Self::of(&child)?),
                work => Work::Single(work),
            };
            steps.push(Step { node: handle, after: after.into_iter().collect(), enabled: true, work });
        }
        Ok(Self { steps, objects: graph.held_objects() })
    }

    /// Makes a graph of this work, without disabled nodes. With `is_part` it is a node's own copy.
    pub fn to_graph(&self, is_part: bool) -> Arc<Graph> {
        let handles = self.steps.iter().map(|_| fresh()).collect::<Vec<_>>();
        let node = |step: &Step| {
            let work = match &step.work {
                Work::Single(_) if !step.enabled => Operation::Empty,
                Work::Single(work) => work.clone(),
                Work::Child(plan) => Operation::Graph(plan.to_graph(true)),
            };
            let dependencies = step.after.iter().map(|place| handles[*place]).collect();
            Node { work, dependencies, origin: None }
        };
        let held = self.objects.iter().map(|object| (Arc::clone(object), 1)).collect();
        Graph::register(handles.iter().copied().zip(self.steps.iter().map(node)).collect(), held, is_part)
    }

    /// Visits every piece of work in order, those of child graphs at their places, without disabled nodes.
    pub fn for_each(&self, visit: &mut impl FnMut(&Operation)) {
        for step in self.steps.iter().filter(|step| step.enabled) {
            match &step.work {
                Work::Single(work) => visit(work),
                Work::Child(plan) => plan.for_each(visit),
            }
        }
    }

    /// Returns the step of a node, here or in a child graph.
    pub fn step_mut(&mut self, node: Handle) -> Option<&mut Step> {
        self.steps.iter_mut().find_map(|step| {
            if step.node == node {
                return Some(step);
            }
            match &mut step.work {
                Work::Single(_) => None,
                Work::Child(plan) => plan.step_mut(node),
            }
        })
    }

    /// Takes over the work of a plan of equal topology. Nodes keep their handles.
    pub fn update(&mut self, from: &Plan) -> Result<(), Mismatch> {
        self.check_update(from)?;
        self.objects.clone_from(&from.objects);
        for (step, new) in self.steps.iter_mut().zip(&from.steps) {
            match (&mut step.work, &new.work) {
                (Work::Child(plan), Work::Child(new)) => plan.update(new)?,
                (work, new) => *work = new.clone(),
            }
        }
        Ok(())
    }

    fn check_update(&self, from: &Plan) -> Result<(), Mismatch> {
        if self.steps.len() != from.steps.len() {
            return Err(Mismatch { result: TOPOLOGY_CHANGED, node: 0 });
        }
        for (step, new) in self.steps.iter().zip(&from.steps) {
            let mismatch = |result| Err(Mismatch { result, node: new.node });
            if step.after != new.after {
                return mismatch(TOPOLOGY_CHANGED);
            }
            match (&step.work, &new.work) {
                (Work::Child(plan), Work::Child(new)) => plan.check_update(new)?,
                (Work::Single(old), Work::Single(new)) if old.kind() != new.kind() => return mismatch(KIND_CHANGED),
                (Work::Single(old), Work::Single(new)) if !may_replace(old, new) => {
                    return mismatch(PARAMETERS_CHANGED);
                }
                (Work::Single(_), Work::Single(_)) => {}
                _ => return mismatch(KIND_CHANGED),
            }
        }
        Ok(())
    }
}

/// Reports whether work may replace other work in an executable graph: it needs the same kind and context, and a copy
/// needs the same kinds of memory.
pub fn may_replace(old: &Operation, new: &Operation) -> bool {
    match (old, new) {
        (Operation::Kernel(old), Operation::Kernel(new)) => old.context.handle == new.context.handle,
        (Operation::Copy(old), Operation::Copy(new)) => old.kinds() == new.kinds(),
        (Operation::Fill(_, old), Operation::Fill(_, new)) => old.ordinal == new.ordinal,
        (Operation::Allocate(_) | Operation::Free(_), _) => false,
        (old, new) => old.kind() == new.kind(),
    }
}
