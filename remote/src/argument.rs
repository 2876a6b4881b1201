//! Arguments on their way to a driver and back.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    ffi::{CStr, CString, c_char},
    sync::{Mutex, PoisonError},
};

use gpufleet_surface::{
    argument::{In, Out, Text},
    image::Image,
    status::{Answer, Status},
};

use crate::{
    codec::{Malformed, Put, Reader},
    scope::Scope,
    value::Value,
};

/// Why a call was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The program asked for something that is not there: the call fails.
    Refused(Status),
    /// The message makes no sense: the session ends.
    Malformed,
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<Malformed> for Fault {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// What an argument says about others of the same call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    /// Elements of arrays.
    pub count: usize,
    /// Bytes in the program's memory.
    pub bytes: usize,
    /// Options of a compilation.
    pub jit: usize,
    pub jit_keys: Option<In<u32>>,
    /// Room for a list.
    pub list: usize,
    /// The call succeeded.
    pub ok: bool,
}

impl Sizes {
    /// Returns what all arguments announce.
    pub fn of(announce: impl FnOnce(&mut Self)) -> Self {
        let mut sizes = Self::default();
        announce(&mut sizes);
        sizes
    }
}

/// An argument of a call. The program's library announces all arguments, then sends them with [`Argument::send`]. The
/// session keeps what it gets from [`Argument::hold`], passes [`Argument::lend`] to the driver, and sends the results
/// with [`Argument::reply`], which the library stores with [`Argument::receive`].
pub trait Argument: Copy {
    /// What the session keeps during the call.
    type Held;

    fn announce(self, sizes: &mut Sizes) {
        let _ = sizes;
    }

    fn send(self, sizes: &Sizes, to: &mut Vec<u8>) -> Answer;

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault>;

    fn lend(held: &mut Self::Held) -> Self;

    /// Says what other arguments must know about the result.
    fn settle(held: &Self::Held, scope: &mut Scope<'_>) {
        let _ = (held, scope);
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        let _ = (held, scope, to);
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        let _ = (sizes, from);
        Ok(())
    }
}

/// Returns a pointer to the value, or null.
pub(crate) fn place<T>(held: &mut Option<T>) -> Out<T> {
    // SAFETY: the session keeps the value until the call has ended.
    unsafe { Out::from_pointer(held.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut)) }
}

/// Returns a pointer to the elements, or null.
pub(crate) fn elements<T>(held: &mut Option<Vec<T>>) -> Out<T> {
    // SAFETY: the session keeps the elements until the call has ended.
    unsafe { Out::from_pointer(held.as_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr)) }
}

/// A place for a result.
impl<T: Value> Argument for Out<T> {
    type Held = Option<T>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.is_null());
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Option<T>, Fault> {
        T::check_room(scope)?;
        Ok(from.flag()?.then(T::zero))
    }

    fn lend(held: &mut Option<T>) -> Self {
        place(held)
    }

    fn reply(held: Option<T>, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if let Some(mut value) = held.filter(|_| scope.ok) {
            value.to_program(scope);
            value.put(to);
        }
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        if sizes.ok && !self.is_null() {
            self.set(T::take(from)?);
        }
        Ok(())
    }
}

/// A value of the program.
impl<T: Value> Argument for In<T> {
    type Held = Option<T>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.is_null());
        if !self.is_null() {
            self.get()?.put(to);
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Option<T>, Fault> {
        let Some(mut value) = from.flag()?.then(|| T::take(from)).transpose()? else { return Ok(None) };
        value.to_driver(scope)?;
        Ok(Some(value))
    }

    fn lend(held: &mut Option<T>) -> Self {
        place(held).input()
    }
}

/// Bytes of the program with a NUL behind them, or null.
type HeldText = Option<CString>;

impl Argument for Text {
    type Held = HeldText;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        let text = self.bytes().ok();
        to.flag(text.is_some());
        if let Some(text) = text {
            to.bytes(text);
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<HeldText, Fault> {
        let text = from.flag()?.then(|| from.bytes()).transpose()?;
        Ok(text.map(CString::new).transpose().map_err(|_| Malformed)?)
    }

    fn lend(held: &mut HeldText) -> Self {
        Self::from_pointer(held.as_ref().map_or(std::ptr::null(), |text| text.as_ptr()))
    }
}

/// A program, which travels without the wrapper around it.
impl Argument for Image {
    type Held = Option<Vec<u8>>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        let image = match self.bytes() {
            Ok(image) => Some(image),
            Err(Status::InvalidValue) => None,
            Err(status) => return Err(status),
        };
        to.flag(image.is_some());
        if let Some(image) = image {
            to.bytes(image);
        }
        Ok(())
    }

    /// The lengths that an image states are checked, because the driver trusts them.
    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        let Some(image) = from.flag()?.then(|| from.bytes()).transpose()? else { return Ok(None) };
        scope.check_image(image)?;
        let mut image = image.to_vec();
        image.push(0);
        Ok(Some(image))
    }

    fn lend(held: &mut Self::Held) -> Self {
        // SAFETY: a text has its NUL, and a container the length that it states.
        unsafe { Self::from_pointer(elements(held).pointer()) }
    }
}

/// A place for the address of a text that belongs to the driver. The program gets one that lives as long as it does.
impl Argument for Out<*const c_char> {
    type Held = Option<*const c_char>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.is_null());
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Ok(from.flag()?.then_some(std::ptr::null()))
    }

    fn lend(held: &mut Self::Held) -> Self {
        place(held)
    }

    fn reply(held: Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if let Some(text) = held.filter(|_| scope.ok) {
            // SAFETY: the driver stored the address of a text of its own.
            let text = if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } };
            to.bytes(text.to_bytes());
        }
    }

    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        if sizes.ok && !self.is_null() {
            self.set(kept_text(from.bytes()?.into()).as_ptr());
        }
        Ok(())
    }
}

/// Returns a text that is never freed; the same one for the same bytes.
fn kept_text(text: Cow<'_, [u8]>) -> &'static CStr {
    static TEXTS: Mutex<BTreeSet<&'static CStr>> = Mutex::new(BTreeSet::new());
    let text = CString::new(text.into_owned()).unwrap_or_default();
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_c_str()) {
        return known;
    }
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    texts.insert(text);
    text
}
