//! The results of linkings.

use gpufleet_surface::{argument::Out, status::Answer};

use super::LinkedImage;
use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Malformed, Put, Reader},
    scope::Scope,
};

/// The image that a linking has made, whose size is the next result.
impl Argument for LinkedImage {
    type Held = (bool, *const u8);

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.0.is_null());
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, _: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        Ok((from.flag()?, std::ptr::null()))
    }

    fn lend((is_wanted, image): &mut Self::Held) -> Self {
        // SAFETY: the session keeps the pointer until the call has ended.
        Self(unsafe { Out::from_pointer(if *is_wanted { image } else { std::ptr::null_mut() }) })
    }

    fn reply((_, image): Self::Held, scope: &mut Scope<'_>, to: &mut Vec<u8>) {
        if scope.ok && !image.is_null() {
            // SAFETY: the driver stored the address and the size of an image that lives as long as the linking.
            to.bytes(unsafe { std::slice::from_raw_parts(image, scope.filled) });
        }
    }

    /// The library frees the image with its linking.
    fn receive(self, sizes: &Sizes, from: &mut Reader<'_>) -> Result<(), Malformed> {
        if sizes.ok && !self.0.is_null() {
            let image: Box<[u8]> = from.bytes()?.into();
            self.0.set(Box::into_raw(image).cast_const().cast());
        }
        Ok(())
    }
}
