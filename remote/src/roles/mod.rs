//! The types that the table of calls names, as arguments on their way: those of `gpufleet_surface::roles`, which say
//! what an argument is for.

mod arrays;
mod callbacks;
mod capture;
mod host;
mod launch;
mod link;
mod memory;

pub use launch::Packed;

use std::ffi::c_void;

use gpufleet_surface::{
    argument::{In, Out},
    status::{Answer, Status},
};

use crate::{
    argument::{Argument, Fault, Sizes, place},
    codec::{Malformed, Put, Reader},
    kinds::{Address, GraphNode, Handle, Kind},
    scope::Scope,
    value::Value,
};

/// A place for the handle of a new object.
pub type New<T> = Out<T>;

macro_rules! wrappers {
    ($($(#[$meta:meta])* $name:ident$(<$parameter:ident>)? ($type:ty);)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        #[repr(transparent)]
        pub struct $name$(<$parameter>)?(pub $type);
    )+};
}

wrappers! {
    /// The handle of an object that the call destroys.
    Gone<T>(T);
    /// A place for a result, where the program left a value.
    InOut<T>(Out<T>);
    /// An array, whose length is the call's [`Count`].
    Many<T>(In<T>);
    Count(usize);
    Count32(u32);
    /// Room for an array, whose length is [`RoomCount`].
    Room<T>(Out<T>);
    RoomCount(Out<usize>);
    /// Room for an array, whose length is [`ListRoom`].
    Listed<T>(Out<T>);
    ListRoom(u32);
    /// Memory of the program that the call reads or writes.
    FromHost(usize);
    ToHost(usize);
    Given(In<u8>);
    Bytes(usize);
    JitCount(u32);
    JitKeys(In<u32>);
    JitValues(Out<usize>);
    JitInputs(In<usize>);
    Unsent<T>(In<T>);
    UnsentCount(u32);
    /// Pointers to arguments of a kernel, which the library gathers before it sends them.
    Parameters(In<*const u8>);
    /// Arguments of a kernel in a buffer.
    Extra(In<usize>);
    /// The value of an attribute, which the library cuts to its size.
    AttributeOut(Out<u64>);
    AttributeIn(In<u64>);
    PointerAttribute(u32);
    AttributeId(u32);
    ContextFlags(u32);
    Always<T>(Out<T>);
    Allocated(Out<Address>);
    MeteredBytes(usize);
    MeteredWidth(usize);
    MeteredHeight(usize);
    /// The description of a new array.
    Metered<T>(In<T>);
    Reserved(Out<Address>);
    ReservedBytes(usize);
    Freed(Address);
    Global(Out<Address>);
    GlobalBytes(Out<usize>);
    FreeBytes(Out<usize>);
    TotalBytes(Out<usize>);
    LinkedImage(Out<*const u8>);
    LinkedBytes(Out<usize>);
    HostData(*mut c_void);
    Frontier(Out<*const GraphNode>);
    FrontierData(Out<*const u64>);
    FrontierCount(Out<usize>);
}

impl<T: Handle + Value> Argument for Gone<T> {
    type Held = T;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.put(to);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<T, Fault> {
        let mut handle = T::take(from)?;
        let number = handle.number();
        handle.to_driver(scope)?;
        scope.destroys(T::KIND, number);
        Ok(handle)
    }

    fn lend(held: &mut T) -> Self {
        Self(*held)
    }
}

/// The result is sent after a failure too, because it may say more than the code.
impl<T: Value> Argument for InOut<T> {
    type Held = Option<T>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        if let Ok(value) = self.0.input().get() {
            value.put(to);
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Option<T>, Fault> {
        let Some(mut value) = from.flag()?.then(|| T::take(from)).transpose()? else { return Ok(None) };
        value.to_driver(scope)?;
        Ok(Some(value))
    }

    fn lend(held: &mut Option<T>) -> Self {
        Self(place(held))
    }

    fn reply(held: Option<T>, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if let Some(mut value) = held {
            value.to_program(scope);
            value.put(to);
        }
    }

    fn receive(self, _: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        if !self.0.is_null() {
            self.0.set(T::take(from)?);
        }
        Ok(())
    }
}

impl Argument for AttributeOut {
    type Held = Option<u64>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.send(sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Out::<u64>::hold(from, scope)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(place(held))
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        let kind = scope.attribute.filter(|_| scope.ok);
        let held = held.map(|value| kind.map_or(value, |kind| scope.program_handle(kind, value)));
        Out::<u64>::reply(held, scope, to);
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        self.0.receive(sizes, from)
    }
}

impl Argument for AttributeIn {
    type Held = Option<u64>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.send(sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        In::<u64>::hold(from, scope)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(place(held).input())
    }
}

/// `CU_POINTER_ATTRIBUTE_P2P_TOKENS`, the only attribute with more than 64 bits.
const P2P_TOKENS: u32 = 5;

impl Argument for PointerAttribute {
    type Held = u32;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.u32(self.0);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<u32, Fault> {
        let attribute = from.u32()?;
        if attribute == P2P_TOKENS {
            return Err(Status::InvalidValue.into());
        }
        // `CU_POINTER_ATTRIBUTE_CONTEXT` and `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`.
        scope.attribute = match attribute {
            1 => Some(Kind::Context),
            17 => Some(Kind::Pool),
            _ => None,
        };
        Ok(attribute)
    }

    fn lend(held: &mut u32) -> Self {
        Self(*held)
    }
}

/// A number whose values are restricted.
macro_rules! restricted {
    ($($name:ident($value:ident) $check:block)+) => {$(
        impl Argument for $name {
            type Held = u32;

            fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
                to.u32(self.0);
                Ok(())
            }

            fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<u32, Fault> {
                let $value = from.u32()?;
                if $check { Ok($value) } else { Err(Status::NotSupported.into()) }
            }

            fn lend(held: &mut u32) -> Self {
                Self(*held)
            }
        }
    )+};
}

restricted! {
    // The values of `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`, `_LAUNCH_COMPLETION_EVENT` and
    // `_DEVICE_UPDATABLE_KERNEL_NODE` have handles.
    AttributeId(id) { ![7, 12, 13].contains(&id) }
    // `CU_CTX_COREDUMP_ENABLE` and `CU_CTX_USER_COREDUMP_ENABLE` write files.
    ContextFlags(flags) { flags & 0x60 == 0 }
}

impl<T: Value> Argument for Always<T> {
    type Held = Option<T>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.send(sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Option<T>, Fault> {
        Out::<T>::hold(from, scope)
    }

    fn lend(held: &mut Option<T>) -> Self {
        Self(place(held))
    }

    fn reply(held: Option<T>, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if let Some(mut value) = held {
            value.to_program(scope);
            value.put(to);
        }
    }

    fn receive(self, _: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        if !self.0.is_null() {
            self.0.set(T::take(from)?);
        }
        Ok(())
    }
}

/// Places for the length of another result, which the session itself needs to send that result.
macro_rules! lengths {
    ($($name:ident)+) => {$(
        impl Argument for $name {
            type Held = (bool, usize);

            fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
                to.flag(!self.0.is_null());
                Ok(())
            }

            fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
                Ok((from.flag()?, 0))
            }

            fn lend((_, length): &mut Self::Held) -> Self {
                // SAFETY: the session keeps the number until the call has ended.
                Self(unsafe { Out::from_pointer(length) })
            }

            fn settle((_, length): &Self::Held, scope: &mut Scope<'_>) {
                scope.filled = *length;
            }

            fn reply((is_wanted, length): Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
                if is_wanted && scope.ok {
                    length.put(to);
                }
            }

            fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
                self.0.receive(sizes, from)
            }
        }
    )+};
}

lengths! { FrontierCount LinkedBytes }
