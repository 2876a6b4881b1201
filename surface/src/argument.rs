//! The caller's pointers, as types that say what they are for.
//!
//! Only C callers create these types, by passing them as arguments. So the caller guarantees what the headers require:
//! the pointer is null, or valid for the access that the type names. Null is checked here, in one place.

use std::{
    ffi::{CStr, c_char},
    panic::UnwindSafe,
};

use crate::status::{Answer, Status};

/// A place for a result in the caller's memory.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// A place for the handle of a new object.
pub type New<T> = Out<T>;

/// A place for a result, where the caller left a value.
pub type InOut<T> = Out<T>;

/// A value, or an array of values, in the caller's memory.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

/// A NUL-terminated string of the caller.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Text(*const c_char);

/// A buffer for text in the caller's memory.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct TextRoom(*mut c_char);

impl<T> UnwindSafe for Out<T> {}
impl<T> UnwindSafe for In<T> {}
impl UnwindSafe for Text {}
impl UnwindSafe for TextRoom {}

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> Out<T> {
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// Makes a place from a pointer that is null or valid for writes for as long as the place is used.
    ///
    /// # Safety
    /// As for a caller in C.
    pub unsafe fn from_pointer(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Writes a result. If the pointer is null, returns an error before it calls `result`.
    pub fn fill(self, result: impl FnOnce() -> Answer<T>) -> Answer {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        let result = result()?;
        self.set(result);
        Ok(())
    }

    /// Writes a result if the pointer is not null.
    pub fn set(self, result: T) {
        if !self.0.is_null() {
            // SAFETY: the caller vouches for a place of this type, and the headers require it to be aligned.
            unsafe { self.0.write(result) };
        }
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn pointer(self) -> *mut T {
        self.0
    }

    /// Returns the place as an input, for a value that the caller left there.
    pub fn input(self) -> In<T> {
        In(self.0.cast_const())
    }

    /// Returns the place with another type, which another argument of the call selects.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Returns the place of an element of the caller's array.
    pub fn at(self, index: usize) -> Self {
        // SAFETY: the caller vouches for an array of the length that it gave.
        Self(unsafe { self.0.add(index) })
    }
}

impl<T> In<T> {
    pub const NULL: Self = Self(std::ptr::null());

    /// Makes an input from a pointer that is null or valid for reads for as long as the input is used.
    ///
    /// # Safety
    /// As for a caller in C.
    pub unsafe fn from_pointer(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// Returns the caller's value.
    pub fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not null, so the caller vouches for a value of this type.
        Ok(unsafe { self.0.read() })
    }

    /// Returns an element of the caller's array.
    pub fn at(self, index: usize) -> Answer<T>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the caller vouches for an array of the length that it gave.
        Ok(unsafe { self.0.add(index).read() })
    }

    /// Returns `length` bytes from here on.
    pub fn bytes<'a>(self, length: usize) -> Answer<&'a [u8]> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not null, so the caller vouches for the length that it gave, and for the bytes during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), length) })
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn pointer(self) -> *const T {
        self.0
    }

    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }

    /// Makes an input from an address that was in the caller's memory.
    pub fn from_address(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }
}

impl Text {
    pub fn from_pointer(pointer: *const c_char) -> Self {
        Self(pointer)
    }

    pub fn bytes<'a>(self) -> Answer<&'a [u8]> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not null, so the caller vouches for a terminated string that does not change during the call.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// Returns the string as a name. A string that is not UTF-8 names nothing.
    pub fn name<'a>(self) -> Answer<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Status::NotFound)
    }
}

impl TextRoom {
    /// Writes as much text as fits, always with a NUL; returns the number of bytes written, with the NUL.
    pub fn write(self, text: &[u8], room: usize) -> Answer<usize> {
        if self.0.is_null() || room == 0 {
            return Err(Status::InvalidValue);
        }
        let length = text.len().min(room - 1);
        // SAFETY: the caller vouches for a buffer of `room` bytes; one of them is kept for the NUL.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), length);
            self.0.add(length).write(0);
        }
        Ok(length + 1)
    }

    /// Makes a buffer from an address that was in the caller's memory.
    pub fn from_address(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }
}

#[cfg(test)]
mod tests {
    use super::{Out, Text, TextRoom};
    use crate::status::Status;

    #[test]
    fn null_is_an_error_before_anything_is_done() {
        assert_eq!(Out::<u32>(std::ptr::null_mut()).fill(|| unreachable!()), Err(Status::InvalidValue));
        assert_eq!(Text(std::ptr::null()).bytes(), Err(Status::InvalidValue));
    }

    #[test]
    fn text_is_cut_to_its_room_and_always_ends() {
        let mut room = [b'x'; 8];
        let place = TextRoom(room.as_mut_ptr().cast());
        assert_eq!(place.write(b"emulator", 4), Ok(4));
        assert_eq!(&room, b"emu\0xxxx");
        assert_eq!(TextRoom(room.as_mut_ptr().cast()).write(b"emulator", 0), Err(Status::InvalidValue));
    }
}
