//! Device memory, which the session counts.

use gpufleet_surface::{
    argument::{In, Out},
    status::{Answer, Status},
};

use super::{
    Allocated, FreeBytes, Freed, Global, GlobalBytes, Metered, MeteredBytes, MeteredHeight, MeteredWidth, Reserved,
    ReservedBytes, TotalBytes,
};
use crate::{
    argument::{Argument, Fault, Sizes, place},
    codec::{Malformed, Put, Reader},
    kinds::Address,
    scope::Scope,
    structs::Shape,
    value::Value,
};

macro_rules! sizes {
    ($($(#[$meta:meta])* $name:ident($bytes:ident, $scope:ident) $charge:block)+) => {$(
        $(#[$meta])*
        impl Argument for $name {
            type Held = usize;

            fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
                self.0.put(to);
                Ok(())
            }

            fn hold(from: &mut Reader<'_>, $scope: &mut Scope<'_>) -> Result<usize, Fault> {
                let bytes = usize::take(from)?;
                let $bytes = bytes as u64;
                $charge
                Ok(bytes)
            }

            fn lend(held: &mut usize) -> Self {
                Self(*held)
            }
        }
    )+};
}

sizes! {
    MeteredBytes(bytes, scope) {
        scope.charge(bytes)?;
    }
    /// Drivers pad rows to this many bytes.
    MeteredWidth(bytes, scope) {
        scope.row_bytes = bytes.checked_next_multiple_of(512).ok_or(Status::OutOfMemory)?;
    }
    MeteredHeight(rows, scope) {
        scope.charge(scope.row_bytes.checked_mul(rows).ok_or(Status::OutOfMemory)?)?;
    }
    ReservedBytes(bytes, scope) {
        scope.new_bytes = bytes;
    }
}

impl<T: Value + Shape> Argument for Metered<T> {
    type Held = Option<T>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.send(sizes, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        let shape = In::<T>::hold(from, scope)?;
        if let Some(shape) = shape {
            scope.charge(shape.bytes().ok_or(Status::InvalidValue)?)?;
        }
        Ok(shape)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(place(held).input())
    }
}

/// Places for an address and for sizes that the session itself needs too.
macro_rules! places {
    ($($name:ident<$type:ty>($held:ident, $scope:ident) $reply:block)+) => {$(
        impl Argument for $name {
            type Held = (bool, Option<$type>);

            fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
                to.flag(!self.0.is_null());
                Ok(())
            }

            fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
                let is_wanted = from.flag()?;
                Ok((is_wanted, is_wanted.then(<$type>::zero)))
            }

            fn lend((_, held): &mut Self::Held) -> Self {
                Self(place(held))
            }

            fn reply((_, held): Self::Held, $scope: &mut Scope<'_>, to: &mut Vec<u8>) {
                if let Some($held) = held.filter(|_| $scope.ok) {
                    let value: $type = $reply;
                    value.put(to);
                }
            }

            fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
                self.0.receive(sizes, from)
            }
        }
    )+};
}

places! {
    Allocated<Address>(address, scope) {
        scope.allocated(address.0);
        address
    }
    Reserved<Address>(address, scope) {
        scope.allocated(address.0);
        address
    }
    FreeBytes<usize>(bytes, scope) {
        let budget = scope.objects().budget();
        usize::try_from(budget.limit - budget.used).map_or(bytes, |left| left.min(bytes))
    }
    TotalBytes<usize>(bytes, scope) {
        usize::try_from(scope.objects().budget().limit).map_or(bytes, |limit| limit.min(bytes))
    }
}

impl Argument for Freed {
    type Held = Address;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.put(to);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Address, Fault> {
        let address = Address::take(from)?;
        Ok(Address(scope.frees(address.0)))
    }

    fn lend(held: &mut Address) -> Self {
        Self(*held)
    }
}

/// The session always wants the place of a variable, to know it as the program's.
impl Argument for Global {
    type Held = (bool, Address);

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Ok((from.flag()?, Address(0)))
    }

    fn lend((_, address): &mut Self::Held) -> Self {
        // SAFETY: the session keeps the address until the call has ended.
        Self(unsafe { Out::from_pointer(address) })
    }

    fn settle((_, address): &Self::Held, scope: &mut Scope<'_>) {
        scope.row_bytes = address.0;
    }

    fn reply((is_wanted, address): Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if is_wanted && scope.ok {
            address.put(to);
        }
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        self.0.receive(sizes, from)
    }
}

impl Argument for GlobalBytes {
    type Held = (bool, usize);

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Ok((from.flag()?, 0))
    }

    fn lend((_, bytes): &mut Self::Held) -> Self {
        // SAFETY: the session keeps the size until the call has ended.
        Self(unsafe { Out::from_pointer(bytes) })
    }

    /// The address is before the size in each row.
    fn settle((_, bytes): &Self::Held, scope: &mut Scope<'_>) {
        if scope.ok {
            scope.found(scope.row_bytes, *bytes as u64);
        }
    }

    fn reply((is_wanted, bytes): Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if is_wanted && scope.ok {
            bytes.put(to);
        }
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        self.0.receive(sizes, from)
    }
}
