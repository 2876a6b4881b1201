//! Handles by their kind, and addresses. Between program and session a handle is a number that the session gave out;
//! the driver's own handles never leave the session.

use std::{fmt::Debug, hash::Hash};

use gpufleet_surface::status::{Answer, Status};

use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Malformed, Put, Reader},
    scope::Scope,
    value::Value,
};

/// A handle of some kind.
pub trait Handle: Copy + Debug {
    const KIND: Kind;
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

macro_rules! kinds {
    ($($name:ident)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($name,)+
        }

        $(
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[repr(transparent)]
            pub struct $name(pub u64);

            impl Handle for $name {
                const KIND: Kind = Kind::$name;

                fn number(self) -> u64 {
                    self.0
                }

                fn of(number: u64) -> Self {
                    Self(number)
                }
            }

            impl Value for $name {
                const BYTES: usize = 8;

                fn put(&self, to: &mut Vec<u8>) {
                    to.u64(self.0);
                }

                fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                    from.u64().map(Self)
                }

                fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
                    self.0 = scope.driver_handle(Kind::$name, self.0)?;
                    Ok(())
                }

                fn to_program(&mut self, scope: &mut Scope<'_>) {
                    self.0 = scope.program_handle(Kind::$name, self.0);
                }

                fn check_room(scope: &Scope<'_>) -> Answer {
                    scope.objects().check_room(Kind::$name)
                }
            }

            value_argument! { $name }
        )+
    };
}

/// A value that is an argument itself.
macro_rules! value_argument {
    ($($type:ty)+) => {$(
        impl Argument for $type {
            type Held = Self;

            fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
                Value::put(&self, to);
                Ok(())
            }

            fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self, Fault> {
                let mut value = <Self as Value>::take(from)?;
                value.to_driver(scope)?;
                Ok(value)
            }

            fn lend(held: &mut Self) -> Self {
                *held
            }
        }
    )+};
}
pub(crate) use value_argument;

kinds! {
    Array Context Event Function Graph GraphExec GraphNode GreenContext Kernel Library Link MipmappedArray Module
    PhysicalMemory Pool Stream SurfaceObject SurfaceReference TextureObject TextureReference UserObject
}

/// An address in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Address(pub u64);

/// An address in the memory of the program. It has no meaning in the session, so it is no [`Argument`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct HostAddress(pub usize);

/// The number of a device. A session has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Device(pub i32);

impl Kind {
    /// Returns what a driver answers to a handle of this kind that it does not know.
    pub fn unknown(self) -> Status {
        match self {
            Self::Context => Status::InvalidContext,
            Self::Graph
            | Self::GraphExec
            | Self::GraphNode
            | Self::PhysicalMemory
            | Self::SurfaceObject
            | Self::SurfaceReference
            | Self::TextureObject
            | Self::TextureReference
            | Self::UserObject => Status::InvalidValue,
            _ => Status::InvalidHandle,
        }
    }

    /// Reports whether kernels get the handle as an argument, so that a program must have the driver's value.
    pub fn is_value(self) -> bool {
        matches!(self, Self::SurfaceObject | Self::TextureObject)
    }

    /// Reports whether this number is not a handle but has a meaning of its own: null, and the default streams.
    pub fn has_meaning(self, number: u64) -> bool {
        number == 0 || self == Self::Stream && number <= 2
    }
}

impl Value for Address {
    const BYTES: usize = 8;

    fn put(&self, to: &mut Vec<u8>) {
        to.u64(self.0);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.u64().map(Self)
    }

    /// Kernels find their memory by themselves; what the driver itself accesses must belong to the session.
    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        self.0 = scope.driver_address(self.0);
        Ok(())
    }
}

value_argument! { Address }

impl Value for Device {
    const BYTES: usize = 4;

    fn put(&self, to: &mut Vec<u8>) {
        to.i32(self.0);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        from.i32().map(Self)
    }

    fn to_driver(&mut self, _: &mut Scope<'_>) -> Answer {
        if self.0 == 0 { Ok(()) } else { Err(Status::InvalidDevice) }
    }
}

value_argument! { Device }
