//! Operations: work that can be submitted to a stream. It runs immediately, is recorded if the stream is capturing, or
//! becomes a node of a graph.

use std::sync::Arc;

use super::{
    context::Context,
    copy::Copy,
    device::{Device, DeviceFault},
    fill::Fill,
    graph::{Graph, memory::GraphMemory},
    handle::Handle,
    host_call::HostCall,
    launch::Kernel,
};

/// A piece of work.
#[derive(Debug, Clone)]
pub enum Operation {
    Kernel(Arc<Kernel>),
    Copy(Copy),
    Fill(Fill, &'static Device),
    Host(HostCall),
    /// A whole child graph; the node has a copy of it.
    Graph(Arc<Graph>),
    Empty,
    /// Waits for the event's mark at the time of the graph launch.
    Wait(Handle),
    /// Records the event.
    Record(Handle),
    Allocate(Arc<GraphMemory>),
    Free(u64),
}

impl Operation {
    /// Returns the `CUgraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(..) => 2,
            Self::Host(_) => 3,
            Self::Graph(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free(_) => 11,
        }
    }

    /// Returns the context that the work runs in, if it has one of its own.
    pub fn context(&self) -> Option<&Arc<Context>> {
        match self {
            Self::Kernel(kernel) => Some(&kernel.context),
            _ => None,
        }
    }

    /// Does the work. Child graphs, events and graph memory do nothing here, because the launch of a graph handles
    /// them.
    pub fn perform(&self) -> Result<(), DeviceFault> {
        match self {
            Self::Kernel(kernel) => kernel.run(),
            Self::Copy(copy) => copy.perform(),
            Self::Fill(fill, device) => fill.perform(device),
            Self::Host(call) => {
                call.run();
                Ok(())
            }
            Self::Graph(_) | Self::Empty | Self::Wait(_) | Self::Record(_) | Self::Allocate(_) | Self::Free(_) => {
                Ok(())
            }
        }
    }
}
