//! The arguments of a launch, which a caller passes in one of two forms.

use crate::{
    argument::In,
    status::{Answer, Status},
};

/// Keys of the `extra` list (`CU_LAUNCH_PARAM_*`): end, buffer, size of the buffer.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_BYTES: usize = 2;
/// Maximum elements of the list: both keys with their values, and the end.
const EXTRA_LENGTH_MAX: usize = 5;

/// Source of the arguments.
#[derive(Debug, Clone, Copy)]
pub enum Arguments {
    /// One pointer per parameter.
    Pointers(*const *const u8),
    /// A buffer with all parameters, laid out as the kernel reads them.
    Packed { pointer: *const u8, bytes: usize },
    /// No arguments, for a kernel without parameters.
    None,
}

/// The parameter block of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct ParameterBlock {
    pub bytes: usize,
    /// Maximum bytes that a caller may pass, with padding at the end.
    pub bytes_max: usize,
}

impl Arguments {
    /// Returns the arguments from the last two arguments of a call that launches.
    pub fn of(parameters: In<*const u8>, extra: In<usize>) -> Answer<Self> {
        match (parameters.is_null(), extra.is_null()) {
            (false, true) => Ok(Self::Pointers(parameters.pointer())),
            (true, false) => packed(extra),
            (true, true) => Ok(Self::None),
            (false, false) => Err(Status::InvalidValue),
        }
    }

    /// Copies the arguments into one block. The parameters are offsets and sizes in it.
    ///
    /// # Safety
    /// The arguments point to a readable value for each parameter, of the parameter's size.
    pub unsafe fn gather(
        self,
        block: ParameterBlock,
        params: impl ExactSizeIterator<Item = (usize, usize)>,
    ) -> Answer<Vec<u8>> {
        let ParameterBlock { bytes: block_bytes, bytes_max } = block;
        let mut block = vec![0u8; block_bytes];
        match self {
            Self::None if params.len() == 0 => {}
            Self::None => return Err(Status::InvalidValue),
            Self::Packed { pointer, bytes } => {
                // A structure of the caller may end with padding.
                if !(block_bytes..=bytes_max).contains(&bytes) || pointer.is_null() && bytes > 0 {
                    return Err(Status::InvalidValue);
                }
                // SAFETY: the caller vouches for `bytes` readable bytes, which are at least those of the block.
                unsafe { std::ptr::copy_nonoverlapping(pointer, block.as_mut_ptr(), block.len()) };
            }
            Self::Pointers(pointers) => {
                for (index, (offset, bytes)) in params.enumerate() {
                    // SAFETY: the caller vouches for one pointer for each parameter.
                    let value = unsafe { pointers.add(index).read() };
                    if value.is_null() {
                        return Err(Status::InvalidValue);
                    }
                    let place = &mut block[offset..][..bytes];
                    // SAFETY: the caller vouches for a readable value of the parameter's size.
                    unsafe { std::ptr::copy_nonoverlapping(value, place.as_mut_ptr(), place.len()) };
                }
            }
        }
        Ok(block)
    }
}

fn packed(extra: In<usize>) -> Answer<Arguments> {
    let (mut pointer, mut bytes) = (None, None);
    for index in (0..EXTRA_LENGTH_MAX).step_by(2) {
        match extra.at(index)? {
            EXTRA_END => break,
            EXTRA_BUFFER => pointer = Some(extra.at(index + 1)?),
            EXTRA_BYTES => bytes = Some(In::<usize>::from_address(extra.at(index + 1)?).get()?),
            _ => return Err(Status::InvalidValue),
        }
    }
    let (pointer, bytes) = pointer.zip(bytes).ok_or(Status::InvalidValue)?;
    Ok(Arguments::Packed { pointer: std::ptr::with_exposed_provenance(pointer), bytes })
}
