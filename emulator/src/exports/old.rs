//! Bodies of functions in their first versions, whose arguments differ from those of the later ones.

use gpufleet_surface::{
    argument::{In, Out},
    capture::Mode,
    structs::graph::FirstKernelParams,
};

use super::{capture::begin_capture, graph_exec, graph_kernel};
use crate::driver::{handle::Handle, pinned, status::Answer};

pub(super) fn cuGraphAddKernelNode(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: In<FirstKernelParams>,
) -> Answer {
    graph_kernel::add_kernel(node, graph, dependencies, count, || Ok(params.get()?.into()))
}

pub(super) fn cuGraphKernelNodeGetParams(node: Handle, params: Out<FirstKernelParams>) -> Answer {
    params.fill(|| Ok(graph_kernel::params_of(node)?.first))
}

pub(super) fn cuGraphKernelNodeSetParams(node: Handle, params: In<FirstKernelParams>) -> Answer {
    graph_kernel::set_kernel(node, &params.get()?.into())
}

pub(super) fn cuGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: In<FirstKernelParams>) -> Answer {
    graph_exec::set_kernel(exec, node, &params.get()?.into())
}

pub(super) fn cuMemAllocHost(pointer: Out<usize>, bytes: u32) -> Answer {
    pointer.fill(|| pinned::alloc(bytes as usize, 0))
}

pub(super) fn cuStreamBeginCapture(stream: Handle) -> Answer {
    begin_capture(stream, Mode::Global)
}

pub(super) fn cuGraphInstantiate(
    exec: Out<Handle>,
    graph: Handle,
    error_node: Out<Handle>,
    log: Out<u8>,
    room: usize,
) -> Answer {
    instantiate(exec, graph, error_node, log, room)
}

pub(super) fn cuGraphInstantiate_v2(
    exec: Out<Handle>,
    graph: Handle,
    error_node: Out<Handle>,
    log: Out<u8>,
    room: usize,
) -> Answer {
    instantiate(exec, graph, error_node, log, room)
}

pub(super) fn cuGraphExecUpdate(exec: Handle, graph: Handle, error_node: Out<Handle>, result: Out<u32>) -> Answer {
    graph_exec::update(exec, graph, |number, node| {
        error_node.set(node);
        result.set(number);
    })
}

fn instantiate(exec: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<u8>, room: usize) -> Answer {
    error_node.set(0);
    if room > 0 {
        // There is no log; the code says it all.
        log.set(0);
    }
    exec.fill(|| graph_exec::instantiate(graph, 0))
}
