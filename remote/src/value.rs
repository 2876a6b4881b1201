//! What a pointer of a call points to.

use gpufleet_surface::status::Answer;

use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Malformed, Put, Reader},
    kinds::value_argument,
    scope::Scope,
};

pub trait Value: Copy {
    /// Bytes on the way.
    const BYTES: usize;

    fn put(&self, to: &mut Vec<u8>);

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Replaces what came from the program by what the driver understands.
    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        let _ = scope;
        Ok(())
    }

    /// Replaces what came from the driver by what the program understands.
    fn to_program(&mut self, scope: &mut Scope<'_>) {
        let _ = scope;
    }

    /// Reports whether the session can keep another result like this one.
    fn check_room(scope: &Scope<'_>) -> Answer {
        let _ = scope;
        Ok(())
    }

    /// Returns the value whose bytes are 0.
    fn zero() -> Self {
        Self::take(&mut Reader::new(&vec![0; Self::BYTES]))
            .unwrap_or_else(|Malformed| unreachable!("zeros are a value"))
    }
}

macro_rules! numbers {
    ($($type:ty)+) => {
        $(
            impl Value for $type {
                const BYTES: usize = size_of::<$type>();

                fn put(&self, to: &mut Vec<u8>) {
                    to.extend(self.to_le_bytes());
                }

                fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                    from.array().map(Self::from_le_bytes)
                }
            }
        )+

        value_argument! { $($type)+ }
    };
}

numbers! { u8 u16 u32 u64 i32 f32 }

/// Sizes have 64 bits on the way.
impl Value for usize {
    const BYTES: usize = 8;

    fn put(&self, to: &mut Vec<u8>) {
        to.u64(*self as u64);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        usize::try_from(from.u64()?).map_err(|_| Malformed)
    }
}

value_argument! { usize }

impl<T: Value, const N: usize> Value for [T; N] {
    const BYTES: usize = N * T::BYTES;

    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut values = Vec::with_capacity(N);
        for _ in 0..N {
            values.push(T::take(from)?);
        }
        values.try_into().map_err(|_| Malformed)
    }

    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        self.iter_mut().try_for_each(|value| value.to_driver(scope))
    }

    fn to_program(&mut self, scope: &mut Scope<'_>) {
        self.iter_mut().for_each(|value| value.to_program(scope));
    }
}
