//! Linking (`cuLink*`): each PTX text is checked when it is added, and all are resolved against each other at the end.

use std::sync::Arc;

use super::{
    device::Device,
    jit::{self, JitError, Loaded},
};
use crate::module::{Module, Text};

/// Start of a linked image. The rest of the line contains the register limit, if any, and the bytes of each text,
/// separated by commas. The texts follow one after the other.
const MAGIC: &str = "// texts linked by gpufleet's emulator: ";

/// A text to link, and its name in messages.
#[derive(Debug)]
pub struct Input {
    pub name: String,
    pub ptx: Vec<u8>,
}

/// Checks a text; names that other texts may define are allowed.
pub fn check(device: &Device, ptx: &[u8]) -> Result<(), JitError> {
    jit::refuse_binary(ptx)?;
    Ok(Module::check(jit::utf8(ptx)?, &Arc::clone(&device.memory), device.capability)?)
}

/// Returns the PTX of a fat binary for a device.
pub fn text_of(device: &Device, image: &[u8]) -> Result<String, JitError> {
    let memory = &Arc::clone(&device.memory);
    jit::newest(device, image, |text| Module::check(text, memory, device.capability).map(|()| text.to_owned()))
}

/// Links texts to an image; returns the image and the log. `registers_max` limits the register count of each kernel.
pub fn link(device: &Device, inputs: &[Input], registers_max: Option<u32>) -> Result<(Vec<u8>, String), JitError> {
    let mut texts = Vec::new();
    for Input { name, ptx } in inputs {
        texts.push(Text { name, ptx: jit::utf8(ptx)? });
    }
    let module = Module::link(&texts, &Arc::clone(&device.memory), device.capability)?;
    let limit = registers_max.map(|limit| limit.to_string()).unwrap_or_default();
    let lengths = texts.iter().map(|text| format!(",{}", text.ptx.len())).collect::<String>();
    let all = texts.iter().map(|text| text.ptx).collect::<String>();
    let image = format!("{MAGIC}{limit}{lengths}\n{all}");
    Ok((image.into_bytes(), Loaded::from_module(module, device).log))
}

/// Parses a linked image; returns its texts and its register limit.
pub(super) fn texts(image: &str) -> Option<(Vec<Text<'_>>, Option<u32>)> {
    let (numbers, mut rest) = image.strip_prefix(MAGIC)?.split_once('\n')?;
    let (limit, lengths) = numbers.split_once(',')?;
    let mut texts = Vec::new();
    for length in lengths.split(',') {
        let ptx;
        (ptx, rest) = rest.split_at_checked(length.parse().ok()?)?;
        texts.push(Text { name: "linked image", ptx });
    }
    Some((texts, limit.parse().ok()))
}
