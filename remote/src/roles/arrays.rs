//! Arrays, whose lengths are other arguments.

use gpufleet_surface::{
    argument::{In, Out},
    status::{Answer, Status},
};

use super::{Count, Count32, ListRoom, Listed, Many, Room, RoomCount};
use crate::{
    argument::{Argument, Fault, Sizes, elements, place},
    codec::{Malformed, Put, Reader},
    objects::HANDLES_MAX,
    scope::Scope,
    value::Value,
};

impl<T: Value> Argument for Many<T> {
    type Held = Option<Vec<T>>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        if self.0.is_null() {
            return Ok(());
        }
        if sizes.count > HANDLES_MAX {
            return Err(Status::InvalidValue);
        }
        to.u64(sizes.count as u64);
        for index in 0..sizes.count {
            self.0.at(index)?.put(to);
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        if !from.flag()? {
            return Ok(None);
        }
        let mut values = Vec::new();
        for _ in 0..from.length()? {
            let mut value = T::take(from)?;
            value.to_driver(scope)?;
            values.push(value);
        }
        scope.array_length(values.len())?;
        Ok(Some(values))
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(elements(held).input())
    }
}

/// A number of elements.
macro_rules! counts {
    ($($name:ident $type:ty;)+) => {$(
        impl Argument for $name {
            type Held = $type;

            fn announce(self, sizes: &mut Sizes) {
                sizes.count = self.0 as usize;
            }

            fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
                self.0.put(to);
                Ok(())
            }

            fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
                let count = <$type>::take(from)?;
                scope.array_length(count as usize)?;
                Ok(count)
            }

            fn lend(count: &mut Self::Held) -> Self {
                Self(*count)
            }
        }
    )+};
}

counts! {
    Count usize;
    Count32 u32;
}

impl<T: Value> Argument for Room<T> {
    type Held = Option<Vec<T>>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        put_room(self.0.is_null(), sizes.count, to);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        let room = hold_room(from)?;
        scope.room = scope.room.min(room.as_ref().map_or(usize::MAX, Vec::len));
        Ok(room)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(elements(held))
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        reply_room(held, scope, to);
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        get_room(self.0, sizes.count, sizes, from)
    }
}

impl Argument for RoomCount {
    type Held = Option<usize>;

    fn announce(self, sizes: &mut Sizes) {
        sizes.count = self.0.input().get().unwrap_or(0);
    }

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        self.0.input().send(sizes, to)
    }

    /// The driver writes no more elements than the session has room for.
    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Option<usize>, Fault> {
        let count = In::<usize>::hold(from, scope)?;
        Ok(count.map(|count| count.min(scope.room)))
    }

    fn lend(held: &mut Option<usize>) -> Self {
        Self(place(held))
    }

    fn settle(held: &Option<usize>, scope: &mut Scope<'_>) {
        scope.filled = held.unwrap_or(0);
    }

    fn reply(held: Option<usize>, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        Out::<usize>::reply(held, scope, to);
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        self.0.receive(sizes, from)
    }
}

impl<T: Value> Argument for Listed<T> {
    type Held = Option<Vec<T>>;

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer {
        put_room(self.0.is_null(), sizes.list, to);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        let room = hold_room(from)?;
        scope.filled = room.as_ref().map_or(0, Vec::len);
        Ok(room)
    }

    fn lend(held: &mut Self::Held) -> Self {
        Self(elements(held))
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        reply_room(held, scope, to);
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        get_room(self.0, sizes.list, sizes, from)
    }
}

impl Argument for ListRoom {
    type Held = u32;

    fn announce(self, sizes: &mut Sizes) {
        sizes.list = self.0 as usize;
    }

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.u32(self.0);
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<u32, Fault> {
        Ok(from.u32()?.min(scope.filled as u32))
    }

    fn lend(held: &mut u32) -> Self {
        Self(*held)
    }
}

fn put_room(is_null: bool, count: usize, to: &mut Vec<u8>) {
    to.flag(!is_null);
    if !is_null {
        to.u64(count.min(HANDLES_MAX) as u64);
    }
}

fn hold_room<T: Value>(from: &mut Reader<'_>) -> Result<Option<Vec<T>>, Malformed> {
    if !from.flag()? {
        return Ok(None);
    }
    match usize::try_from(from.u64()?) {
        Ok(count @ ..=HANDLES_MAX) => Ok(Some(vec![T::zero(); count])),
        _ => Err(Malformed),
    }
}

fn reply_room<T: Value>(held: Option<Vec<T>>, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
    let Some(values) = held.filter(|_| scope.ok) else { return };
    let filled = values.len().min(scope.filled);
    to.u64(filled as u64);
    for mut value in values.into_iter().take(filled) {
        value.to_program(scope);
        value.put(to);
    }
}

/// Stores elements up to the first that is 0, which stands behind the last that the driver stored.
fn get_room<T: Value>(room: Out<T>, count: usize, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
    if !sizes.ok || room.is_null() {
        return Ok(());
    }
    let filled = from.length()?;
    if filled > count {
        return Err(Malformed);
    }
    for index in 0..filled {
        let at = from.take(T::BYTES)?;
        if at.iter().any(|byte| *byte != 0) {
            room.at(index).set(T::take(&mut Reader::new(at))?);
        }
    }
    Ok(())
}
