//! Where a capture goes on.

use std::cell::RefCell;

use gpufleet_surface::status::Answer;

use super::{Frontier, FrontierData};
use crate::{
    argument::{Argument, Fault, Sizes, place},
    codec::{Malformed, Put, Reader},
    kinds::GraphNode,
    scope::Scope,
    value::Value,
};

impl Argument for Frontier {
    type Held = Option<*const GraphNode>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Ok(from.flag()?.then_some(std::ptr::null()))
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(place(held))
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        let Some(nodes) = held.filter(|_| scope.ok) else { return };
        let count = if nodes.is_null() { 0 } else { scope.filled };
        to.u64(count as u64);
        for index in 0..count {
            // SAFETY: the driver stored the address and the number of nodes, which live until the capture goes on.
            let mut node = unsafe { nodes.add(index).read() };
            node.to_program(scope);
            node.put(to);
        }
    }

    /// The nodes stay until the thread asks again, or calls [`FrontierCount`] for another stream.
    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        thread_local! {
            static LAST: RefCell<Vec<GraphNode>> = const { RefCell::new(Vec::new()) };
        }
        if !sizes.ok || self.0.is_null() {
            return Ok(());
        }
        let nodes = (0..from.length()?).map(|_| GraphNode::take(from)).collect::<Result<Vec<_>, _>>()?;
        let pointer = LAST.with(|last| {
            last.replace(nodes);
            last.borrow().as_ptr()
        });
        self.0.set(pointer);
        Ok(())
    }
}

/// Data of dependencies, which only launches in programmatic order have. The program gets none.
impl Argument for FrontierData {
    type Held = Option<*const u64>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Ok(from.flag()?.then_some(std::ptr::null()))
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(place(held))
    }

    fn receive(self, sizes: &Sizes, _: &mut Reader<'_>) -> Result<(), Malformed> {
        if sizes.ok {
            self.0.set(std::ptr::null());
        }
        Ok(())
    }
}
