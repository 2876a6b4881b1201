//! C functions for graphs: nodes and edges (`cuGraph*`).

use std::{ffi::OsStr, fmt::Write as _, fs, os::unix::ffi::OsStrExt, path::Path};

use gpufleet_surface::argument::{In, Out, Text};

use crate::driver::{
    graph::{self, Edge, Graph},
    handle::Handle,
    operation::Operation,
    status::{Answer, Status},
};

pub(super) fn cuGraphCreate(graph: Out<Handle>, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    crate::driver::driver()?;
    graph.fill(|| Ok(Graph::new().handle))
}

pub(super) fn cuGraphDestroy(graph: Handle) -> Answer {
    graph::destroy(graph)
}

pub(super) fn cuGraphClone(clone: Out<Handle>, graph: Handle) -> Answer {
    clone.fill(|| Ok(graph::find(graph)?.copy(false).handle))
}

pub(super) fn cuGraphNodeFindInClone(node: Out<Handle>, origin: Handle, clone: Handle) -> Answer {
    node.fill(|| graph::find(clone)?.copy_of(origin))
}

pub(super) fn cuGraphNodeGetType(node: Handle, kind: Out<u32>) -> Answer {
    kind.fill(|| Ok(graph::work_of(node)?.kind()))
}

pub(super) fn cuGraphDestroyNode(node: Handle) -> Answer {
    graph::of_node(node)?.remove(node)
}

pub(super) fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> Answer {
    list(&graph::find(graph)?.handles(), nodes, count)
}

pub(super) fn cuGraphGetRootNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> Answer {
    list(&graph::find(graph)?.roots(), nodes, count)
}

pub(super) fn cuGraphGetEdges(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) -> Answer {
    edges(graph, from, to, count)
}

pub(super) fn cuGraphGetEdges_v2(
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    data: Out<u64>,
    count: Out<usize>,
) -> Answer {
    zero_data(data, count, from.is_null())?;
    edges(graph, from, to, count)
}

pub(super) fn cuGraphNodeGetDependencies(node: Handle, nodes: Out<Handle>, count: Out<usize>) -> Answer {
    list(&graph::of_node(node)?.node(node)?.dependencies, nodes, count)
}

pub(super) fn cuGraphNodeGetDependencies_v2(
    node: Handle,
    nodes: Out<Handle>,
    data: Out<u64>,
    count: Out<usize>,
) -> Answer {
    zero_data(data, count, nodes.is_null())?;
    list(&graph::of_node(node)?.node(node)?.dependencies, nodes, count)
}

pub(super) fn cuGraphNodeGetDependentNodes(node: Handle, nodes: Out<Handle>, count: Out<usize>) -> Answer {
    list(&dependents(node)?, nodes, count)
}

pub(super) fn cuGraphNodeGetDependentNodes_v2(
    node: Handle,
    nodes: Out<Handle>,
    data: Out<u64>,
    count: Out<usize>,
) -> Answer {
    zero_data(data, count, nodes.is_null())?;
    list(&dependents(node)?, nodes, count)
}

pub(super) fn cuGraphAddDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) -> Answer {
    graph::find(graph)?.add_edges(&pairs(from, to, count)?)
}

pub(super) fn cuGraphAddDependencies_v2(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    data: In<u64>,
    count: usize,
) -> Answer {
    no_edge_data(data, count)?;
    graph::find(graph)?.add_edges(&pairs(from, to, count)?)
}

pub(super) fn cuGraphRemoveDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) -> Answer {
    graph::find(graph)?.remove_edges(&pairs(from, to, count)?)
}

pub(super) fn cuGraphRemoveDependencies_v2(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    data: In<u64>,
    count: usize,
) -> Answer {
    no_edge_data(data, count)?;
    graph::find(graph)?.remove_edges(&pairs(from, to, count)?)
}

pub(super) fn cuGraphChildGraphNodeGetGraph(node: Handle, graph: Out<Handle>) -> Answer {
    graph.fill(|| match graph::work_of(node)? {
        Operation::Graph(child) => Ok(child.handle),
        _ => Err(Status::InvalidValue),
    })
}

pub(super) fn cuGraphDebugDotPrint(graph: Handle, path: Text, flags: u32) -> Answer {
    let _ = flags;
    let path = Path::new(OsStr::from_bytes(path.bytes()?));
    fs::write(path, dot(&*graph::find(graph)?)?).map_err(|_| Status::OperatingSystem)
}

/// Reads an array of handles.
pub(super) fn handles(array: In<Handle>, count: usize) -> Answer<Vec<Handle>> {
    (0..count).map(|index| array.at(index)).collect()
}

/// Refuses edges with data, which are for kernels that start before others have ended. Zeros count as no data.
pub(super) fn no_edge_data(data: In<u64>, count: usize) -> Answer {
    if data.is_null() {
        return Ok(());
    }
    for index in 0..count {
        if data.at(index)? != 0 {
            return Err(Status::NotSupported);
        }
    }
    Ok(())
}

/// Returns the number of elements if the caller passes no array. Otherwise fills the array as far as it goes and sets
/// its other elements to null.
fn list(values: &[Handle], places: Out<Handle>, count: Out<usize>) -> Answer {
    let room = count.input().get()?;
    if places.is_null() {
        count.set(values.len());
        return Ok(());
    }
    (0..room).for_each(|index| places.at(index).set(values.get(index).copied().unwrap_or(0)));
    count.set(values.len().min(room));
    Ok(())
}

fn edges(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) -> Answer {
    if from.is_null() != to.is_null() {
        return Err(Status::InvalidValue);
    }
    let room = count.input().get()?;
    let (sources, targets) = graph::find(graph)?.edges().into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    list(&sources, from, count)?;
    count.set(room);
    list(&targets, to, count)
}

/// Fills the edge data with zeros, because no edge has any.
fn zero_data(data: Out<u64>, count: Out<usize>, is_question: bool) -> Answer {
    if !data.is_null() && !is_question {
        (0..count.input().get()?).for_each(|index| data.at(index).set(0));
    }
    Ok(())
}

fn dependents(node: Handle) -> Answer<Vec<Handle>> {
    let edges = graph::of_node(node)?.edges();
    Ok(edges.into_iter().filter(|(from, _)| *from == node).map(|(_, to)| to).collect())
}

fn pairs(from: In<Handle>, to: In<Handle>, count: usize) -> Answer<Vec<Edge>> {
    (0..count).map(|index| Ok((from.at(index)?, to.at(index)?))).collect()
}

fn dot(graph: &Graph) -> Answer<String> {
    let mut text = "digraph graph_of_emulator {\n".to_owned();
    for handle in graph.handles() {
        let label = match graph.node(handle)?.work {
            Operation::Kernel(kernel) => format!("kernel {}", kernel.function.entry.name),
            Operation::Copy(_) => "copy".to_owned(),
            Operation::Fill(..) => "fill".to_owned(),
            Operation::Host(_) => "host function".to_owned(),
            Operation::Graph(_) => "graph".to_owned(),
            Operation::Empty => "empty".to_owned(),
            Operation::Wait(_) => "wait for event".to_owned(),
            Operation::Record(_) => "record event".to_owned(),
            Operation::Allocate(_) => "allocate".to_owned(),
            Operation::Free(_) => "free".to_owned(),
        };
        // Writing to a string can't fail.
        let _ = writeln!(text, "  node_{handle:x} [label=\"{label}\"];");
    }
    for (from, to) in graph.edges() {
        let _ = writeln!(text, "  node_{from:x} -> node_{to:x};");
    }
    text.push_str("}\n");
    Ok(text)
}
