//! Arguments of kernels, and options that have no meaning elsewhere.

use gpufleet_surface::{
    argument::In,
    launch::arguments::Arguments,
    status::{Answer, Status},
};

use super::{Extra, Parameters, Unsent, UnsentCount};
use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Malformed, Put, Reader},
    scope::Scope,
};

impl<T: Copy> Argument for Unsent<T> {
    type Held = ();

    fn send(self, _: &Sizes, _: &mut Vec<u8>) -> Answer {
        Ok(())
    }

    fn hold(_: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn lend((): &mut ()) -> Self {
        Self(In::NULL)
    }
}

impl Argument for UnsentCount {
    type Held = ();

    fn send(self, _: &Sizes, _: &mut Vec<u8>) -> Answer {
        Ok(())
    }

    fn hold(_: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn lend((): &mut ()) -> Self {
        Self(0)
    }
}

impl Argument for Parameters {
    type Held = ();

    fn send(self, _: &Sizes, _: &mut Vec<u8>) -> Answer {
        if self.0.is_null() { Ok(()) } else { Err(Status::InvalidValue) }
    }

    fn hold(_: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn lend((): &mut ()) -> Self {
        Self(In::NULL)
    }
}

/// Arguments of a kernel in a buffer, in the form of the C headers.
#[derive(Debug)]
pub struct Packed {
    block: Vec<u8>,
    bytes: Box<usize>,
    list: [usize; 5],
}

impl Packed {
    pub fn new(block: Vec<u8>) -> Self {
        let bytes = Box::new(block.len());
        // `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE` and `CU_LAUNCH_PARAM_END`.
        let list = [1, block.as_ptr().expose_provenance(), 2, std::ptr::from_ref(&*bytes).expose_provenance(), 0];
        Self { block, bytes, list }
    }

    pub fn extra(&mut self) -> In<usize> {
        debug_assert_eq!(*self.bytes, self.block.len());
        // SAFETY: the list lives as long as this does, which outlives the call.
        unsafe { In::from_pointer(self.list.as_ptr()) }
    }

    pub fn put(extra: In<usize>, to: &mut Vec<u8>) -> Answer {
        to.flag(!extra.is_null());
        if let Arguments::Packed { pointer, bytes } = Arguments::of(In::NULL, extra)? {
            if pointer.is_null() {
                return Err(Status::InvalidValue);
            }
            // SAFETY: the library made the list from a block of as many bytes.
            to.bytes(unsafe { std::slice::from_raw_parts(pointer, bytes) });
        }
        Ok(())
    }

    pub fn hold(from: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        let block = from.flag()?.then(|| from.bytes()).transpose()?;
        Ok(block.map(|block| Self::new(block.to_vec())))
    }
}

impl Argument for Extra {
    type Held = Option<Packed>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        Packed::put(self.0, to)
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Ok(Packed::hold(from)?)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(held.as_mut().map_or(In::NULL, Packed::extra))
    }
}
