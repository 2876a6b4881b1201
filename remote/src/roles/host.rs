//! Memory of the program.

use gpufleet_surface::{argument::In, status::Answer};

use super::{Bytes, FromHost, Given, ToHost};
use crate::{
    argument::{Argument, Fault, Sizes, elements},
    codec::{Malformed, Put, Reader},
    frame::PIECE_BYTES,
    scope::Scope,
    value::Value,
};

impl Argument for Bytes {
    type Held = (usize, usize);

    fn announce(self, sizes: &mut Sizes) {
        sizes.bytes = self.0;
    }

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.put(to);
        Ok(())
    }

    /// The driver copies no more than the session has, whatever the program says.
    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        let bytes = usize::take(from)?;
        if bytes != scope.filled && scope.filled != usize::MAX {
            return Err(Fault::Malformed);
        }
        Ok((bytes, scope.filled))
    }

    fn lend((bytes, _): &mut Self::Held) -> Self {
        Self(*bytes)
    }
}

/// Bytes of the program's memory, or null.
fn put_memory(address: usize, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
    to.flag(address != 0);
    if address != 0 {
        to.bytes(In::<u8>::from_address(address).bytes(sizes.bytes)?);
    }
    Ok(())
}

fn hold_memory(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Option<Vec<u8>>, Fault> {
    let bytes = from.flag()?.then(|| from.bytes()).transpose()?;
    scope.filled = bytes.map_or(usize::MAX, <[u8]>::len);
    Ok(bytes.map(<[u8]>::to_vec))
}

impl Argument for FromHost {
    type Held = Option<Vec<u8>>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        put_memory(self.0, sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        scope.reads_memory = true;
        hold_memory(from, scope)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(elements(held).pointer().expose_provenance())
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, _: &mut Vec<u8>) {
        scope.buffers.extend(held);
    }
}

impl Argument for Given {
    type Held = Option<Vec<u8>>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        put_memory(self.0.pointer().expose_provenance(), sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        hold_memory(from, scope)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(elements(held).input())
    }
}

impl Argument for ToHost {
    type Held = Option<Vec<u8>>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(self.0 != 0);
        if self.0 != 0 {
            to.u64(sizes.bytes as u64);
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        if !from.flag()? {
            scope.filled = usize::MAX;
            return Ok(None);
        }
        scope.filled = usize::try_from(from.u64()?).ok().filter(|bytes| *bytes <= PIECE_BYTES).ok_or(Malformed)?;
        scope.returns_memory = true;
        Ok(Some(vec![0; scope.filled]))
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(elements(held).pointer().expose_provenance())
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if let Some(bytes) = held.filter(|_| scope.ok) {
            to.extend(bytes);
        }
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        if sizes.ok && self.0 != 0 {
            let bytes = from.take(sizes.bytes)?;
            let to = std::ptr::with_exposed_provenance_mut::<u8>(self.0);
            // SAFETY: the program vouches for as many bytes as it said.
            unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        }
        Ok(())
    }
}
