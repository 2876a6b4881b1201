//! CUDA graphs: work and the dependencies between it. A graph is only a description; [`exec`] runs it.

pub mod bytes;
pub mod exec;
pub mod memory;
pub mod plan;
pub mod user_object;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use super::{
    handle::{Handle, Registry, fresh},
    operation::Operation,
    started,
    status::{Answer, Status},
};
use user_object::UserObject;

/// A graph.
#[derive(Debug)]
pub struct Graph {
    pub handle: Handle,
    /// True for a node's own copy of a graph, which ends with the node.
    is_part: bool,
    /// Nodes by handle. Handles increase, so this is the order in which nodes were added.
    nodes: Mutex<BTreeMap<Handle, Node>>,
    /// User objects, with the graph's number of references to each.
    held: Mutex<Vec<(Arc<UserObject>, u32)>>,
}

/// A piece of work and its dependencies.
#[derive(Debug, Clone)]
pub struct Node {
    pub work: Operation,
    pub dependencies: Vec<Handle>,
    /// In a clone: the node that this one was copied from.
    origin: Option<Handle>,
}

/// An edge: a node, and the node that depends on it.
pub type Edge = (Handle, Handle);

/// Returns the registry of nodes, which maps each node to its graph's handle.
pub fn nodes() -> Answer<&'static Registry<Handle>> {
    static NODES: LazyLock<Registry<Handle>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*NODES)
}

/// Returns the registry of graphs.
pub fn graphs() -> Answer<&'static Registry<Graph>> {
    static GRAPHS: LazyLock<Registry<Graph>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*GRAPHS)
}

impl Graph {
    /// Creates an empty graph and registers it.
    pub fn new() -> Arc<Self> {
        Self::register(BTreeMap::new(), Vec::new(), false)
    }

    fn register(nodes: BTreeMap<Handle, Node>, held: Vec<(Arc<UserObject>, u32)>, is_part: bool) -> Arc<Self> {
        let (nodes, held) = (Mutex::new(nodes), Mutex::new(held));
        let graph = Arc::new(Self { handle: fresh(), is_part, nodes, held });
        if let (Ok(nodes), Ok(graphs)) = (self::nodes(), graphs()) {
            let owner = Arc::new(graph.handle);
            graph.nodes().keys().for_each(|node| nodes.insert(*node, Arc::clone(&owner)));
            graphs.insert(graph.handle, Arc::clone(&graph));
        }
        graph
    }

    /// Adds a node that depends on other nodes of this graph.
    pub fn add(&self, work: Operation, dependencies: &[Handle]) -> Answer<Handle> {
        self.check_nodes(dependencies)?;
        if dependencies.iter().collect::<BTreeSet<_>>().len() < dependencies.len() {
            return Err(Status::InvalidValue);
        }
        let work = match work {
            Operation::Graph(child) => Operation::Graph(child.copy(true)),
            work => work,
        };
        let node = fresh();
        self.nodes().insert(node, Node { work, dependencies: dependencies.to_vec(), origin: None });
        self::nodes()?.insert(node, Arc::new(self.handle));
        Ok(node)
    }

    /// Checks that all of these are nodes of the graph.
    pub fn check_nodes(&self, handles: &[Handle]) -> Answer {
        let nodes = self.nodes();
        if handles.iter().all(|handle| nodes.contains_key(handle)) { Ok(()) } else { Err(Status::InvalidValue) }
    }

    pub fn node(&self, handle: Handle) -> Answer<Node> {
        self.nodes().get(&handle).cloned().ok_or(Status::InvalidValue)
    }

    /// Replaces a node's work by other work of its kind.
    pub fn set_work(&self, handle: Handle, work: Operation) -> Answer {
        let mut nodes = self.nodes();
        let node = nodes.get_mut(&handle).filter(|node| node.work.kind() == work.kind()).ok_or(Status::InvalidValue)?;
        node.work = work;
        Ok(())
    }

    /// Returns all nodes in the order in which they were added.
    pub fn handles(&self) -> Vec<Handle> {
        self.nodes().keys().copied().collect()
    }

    /// Returns the nodes without dependencies.
    pub fn roots(&self) -> Vec<Handle> {
        let nodes = self.nodes();
        nodes.iter().filter(|(_, node)| node.dependencies.is_empty()).map(|(handle, _)| *handle).collect()
    }

    pub fn edges(&self) -> Vec<Edge> {
        let nodes = self.nodes();
        let of = |(to, node): (&Handle, &Node)| {
            let to = *to;
            node.dependencies.iter().map(move |from| (*from, to)).collect::<Vec<_>>()
        };
        nodes.iter().flat_map(of).collect()
    }

    /// Adds edges; adds none if one of them is invalid or exists already.
    pub fn add_edges(&self, edges: &[Edge]) -> Answer {
        let mut nodes = self.nodes();
        let is_new = |(from, to): &Edge| {
            let dependencies = nodes.get(to).map(|node| &node.dependencies);
            from != to && nodes.contains_key(from) && dependencies.is_some_and(|known| !known.contains(from))
        };
        let distinct = edges.iter().collect::<BTreeSet<_>>().len() == edges.len();
        if !(distinct && edges.iter().all(is_new)) {
            return Err(Status::InvalidValue);
        }
        for (from, to) in edges {
            nodes.entry(*to).and_modify(|node| node.dependencies.push(*from));
        }
        Ok(())
    }

    /// Removes edges; removes none if one of them does not exist.
    pub fn remove_edges(&self, edges: &[Edge]) -> Answer {
        let mut nodes = self.nodes();
        let is_there = |(from, to): &Edge| nodes.get(to).is_some_and(|node| node.dependencies.contains(from));
        if !edges.iter().all(is_there) {
            return Err(Status::InvalidValue);
        }
        for (from, to) in edges {
            nodes.entry(*to).and_modify(|node| node.dependencies.retain(|known| known != from));
        }
        Ok(())
    }

    /// Removes a node with its edges.
    pub fn remove(&self, handle: Handle) -> Answer {
        let mut nodes = self.nodes();
        let removed = nodes.remove(&handle).ok_or(Status::InvalidValue)?;
        nodes.values_mut().for_each(|node| node.dependencies.retain(|known| *known != handle));
        drop(nodes);
        if let Operation::Graph(child) = removed.work {
            child.forget();
        }
        self::nodes()?.remove(handle).map(drop)
    }

    /// Copies the graph; the copy has handles of its own.
    pub fn copy(&self, is_part: bool) -> Arc<Self> {
        let nodes = self.nodes().clone();
        let renamed = nodes.keys().map(|handle| (*handle, fresh())).collect::<BTreeMap<_, _>>();
        let copy = |(handle, node): (Handle, Node)| {
            let work = match node.work {
                Operation::Graph(child) => Operation::Graph(child.copy(true)),
                work => work,
            };
            let dependencies = node.dependencies.iter().map(|known| renamed[known]).collect();
            (renamed[&handle], Node { work, dependencies, origin: Some(handle) })
        };
        Self::register(nodes.into_iter().map(copy).collect(), self.held().clone(), is_part)
    }

    /// In a clone: returns the copy of a node.
    pub fn copy_of(&self, origin: Handle) -> Answer<Handle> {
        let nodes = self.nodes();
        let found = nodes.iter().find(|(_, node)| node.origin == Some(origin));
        found.map(|(handle, _)| *handle).ok_or(Status::InvalidValue)
    }

    /// Reports whether a walk backwards from some nodes reaches all of these.
    pub fn reaches_all(&self, from: &[Handle], all: &[Handle]) -> bool {
        let nodes = self.nodes();
        let (mut reached, mut open) = (BTreeSet::new(), from.to_vec());
        while let Some(handle) = open.pop() {
            if reached.insert(handle) {
                open.extend(nodes.get(&handle).into_iter().flat_map(|node| &node.dependencies));
            }
        }
        all.iter().all(|handle| reached.contains(handle) || !nodes.contains_key(handle))
    }

    /// Removes the handles of the graph and its nodes; executable graphs made from it stay.
    pub fn forget(&self) {
        let (Ok(nodes), Ok(graphs)) = (nodes(), graphs()) else { return };
        for (handle, node) in &*self.nodes() {
            // A handle may have been removed before.
            let _ = nodes.remove(*handle);
            if let Operation::Graph(child) = &node.work {
                child.forget();
            }
        }
        let _ = graphs.remove(self.handle);
    }

    /// Adds references to a user object.
    pub fn hold(&self, object: &Arc<UserObject>, count: u32) -> Answer {
        let mut held = self.held();
        let place = held.iter_mut().find(|(known, _)| known.handle() == object.handle());
        match place {
            _ if count == 0 => return Err(Status::InvalidValue),
            Some((_, references)) => *references = references.checked_add(count).ok_or(Status::InvalidValue)?,
            None => held.push((Arc::clone(object), count)),
        }
        Ok(())
    }

    /// Releases references to a user object.
    pub fn let_go(&self, object: Handle, count: u32) -> Answer {
        let mut held = self.held();
        let place = held.iter().position(|(known, _)| known.handle() == object).ok_or(Status::InvalidValue)?;
        let left = held[place].1.checked_sub(count).filter(|_| count > 0).ok_or(Status::InvalidValue)?;
        held[place].1 = left;
        // This may be the last reference, which calls the owner, so the object is dropped outside the lock.
        let gone = (left == 0).then(|| held.swap_remove(place));
        drop(held);
        drop(gone);
        Ok(())
    }

    /// Returns the user objects that executable graphs made from this graph have to keep.
    pub fn held_objects(&self) -> Vec<Arc<UserObject>> {
        self.held().iter().map(|(object, _)| Arc::clone(object)).collect()
    }

    fn held(&self) -> MutexGuard<'_, Vec<(Arc<UserObject>, u32)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<Handle, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the graph behind a handle.
pub fn find(graph: Handle) -> Answer<Arc<Graph>> {
    graphs()?.get(graph).map_err(|_| Status::InvalidValue)
}

/// Returns the graph that contains a node.
pub fn of_node(node: Handle) -> Answer<Arc<Graph>> {
    find(*nodes()?.get(node).map_err(|_| Status::InvalidValue)?)
}

/// Returns the work of a node.
pub fn work_of(node: Handle) -> Answer<Operation> {
    Ok(of_node(node)?.node(node)?.work)
}

/// `cuGraphDestroy`; refuses a node's own copy.
pub fn destroy(graph: Handle) -> Answer {
    let graph = find(graph)?;
    if graph.is_part {
        return Err(Status::InvalidValue);
    }
    graph.forget();
    Ok(())
}
