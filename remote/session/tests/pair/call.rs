//! The calls of random programs.

/// The names of kernels; the last one is in no module.
pub const NAMES: [&str; 6] = ["fill", "add", "count", "reverse", "nothing", "absent"];
/// Bytes of the largest allocation.
const BYTES_MAX: usize = 1 << 14;

/// A call. Numbers of objects are places in the program's list of its kind; those beyond the list mean an object that
/// was never made, and those of objects that were destroyed a stale one.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    Alloc { bytes: usize },
    AllocPitch { width: usize, height: usize },
    AllocAsync { bytes: usize, stream: usize },
    Free { memory: usize },
    FreeAsync { memory: usize, stream: usize },
    Range { memory: usize, offset: usize },
    Attribute { memory: usize, attribute: u32 },
    Write { memory: usize, offset: usize, bytes: usize, seed: u8, stream: Option<usize> },
    Read { memory: usize, offset: usize, bytes: usize, stream: Option<usize> },
    Copy { to: usize, from: usize, bytes: usize, stream: Option<usize> },
    CopyAny { to: usize, from: usize, bytes: usize },
    CopyFlat { memory: usize, x: usize, y: usize, width: usize, height: usize, to_host: bool },
    Fill { memory: usize, offset: usize, count: usize, width: u8, value: u32, stream: usize },
    FillFlat { memory: usize, pitch: usize, width: usize, height: usize, value: u8 },
    CreateStream { flags: u32, priority: i32 },
    DestroyStream { stream: usize },
    QueryStream { stream: usize },
    SynchronizeStream { stream: usize },
    WaitEvent { stream: usize, event: usize },
    StreamFacts { stream: usize },
    HostFunction { stream: usize },
    CreateEvent { flags: u32 },
    DestroyEvent { event: usize },
    Record { event: usize, stream: usize },
    QueryEvent { event: usize },
    SynchronizeEvent { event: usize },
    Elapsed { start: usize, end: usize },
    Load { is_good: bool },
    Unload { module: usize },
    Function { module: usize, name: usize },
    Global { module: usize, is_there: bool },
    FunctionAttribute { function: usize, attribute: u32 },
    SetFunctionAttribute { function: usize, attribute: u32, value: i32 },
    Occupancy { function: usize, block: i32, shared: usize },
    Launch { function: usize, to: usize, from: usize, grid: u32, block: u32, shared: u32, stream: usize },
    Capture { stream: usize, mode: u32 },
    EndCapture { stream: usize },
    IsCapturing { stream: usize },
    CreateGraph { flags: u32 },
    DestroyGraph { graph: usize },
    CloneGraph { graph: usize },
    AddEmpty { graph: usize },
    Nodes { graph: usize },
    NodeKind { node: usize },
    DestroyNode { node: usize },
    Instantiate { graph: usize },
    LaunchGraph { exec: usize, stream: usize },
    DestroyExec { exec: usize },
    Pinned { bytes: usize },
    Synchronize,
    NoContext,
}

impl Call {
    /// Returns the memory that the call names.
    pub fn memory(self) -> [Option<usize>; 2] {
        match self {
            Self::Free { memory }
            | Self::FreeAsync { memory, .. }
            | Self::Range { memory, .. }
            | Self::Attribute { memory, .. }
            | Self::Write { memory, .. }
            | Self::Read { memory, .. }
            | Self::CopyFlat { memory, .. }
            | Self::Fill { memory, .. }
            | Self::FillFlat { memory, .. } => [Some(memory), None],
            Self::Copy { to, from, .. } => [Some(to), Some(from)],
            _ => [None, None],
        }
    }

    /// Reports whether the library need not wait for the answer.
    pub fn is_post(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Fill { .. } | Self::Launch { .. } | Self::Record { .. })
    }

    /// Returns where in its memory the call starts.
    pub fn offset(self) -> usize {
        match self {
            Self::Range { offset, .. }
            | Self::Write { offset, .. }
            | Self::Read { offset, .. }
            | Self::Fill { offset, .. } => offset,
            _ => 0,
        }
    }
}

/// Draws a call for a program whose lists are about this long.
pub fn draw(random: &mut fastrand::Rng) -> Call {
    let object = random.usize(..7);
    let other = random.usize(..7);
    let on = random.usize(..7);
    let maybe_on = random.bool().then_some(on);
    let bytes = *random.choice(&[0, 1, 4, 64, 256, 1000, 4096, BYTES_MAX]).unwrap();
    let offset = *random.choice(&[0, 0, 0, 4, 8, 3, 4096]).unwrap();
    match random.u32(..58) {
        0..4 => Call::Alloc { bytes },
        4 => Call::AllocPitch { width: random.usize(..100), height: random.usize(..20) },
        5 => Call::AllocAsync { bytes, stream: on },
        6 => Call::Free { memory: object },
        7 => Call::FreeAsync { memory: object, stream: on },
        8 => Call::Range { memory: object, offset },
        9 => Call::Attribute { memory: object, attribute: random.u32(..22) },
        10..13 => Call::Write { memory: object, offset, bytes, seed: random.u8(..), stream: maybe_on },
        13..16 => Call::Read { memory: object, offset, bytes, stream: maybe_on },
        16 => Call::Copy { to: object, from: other, bytes, stream: maybe_on },
        17 => Call::CopyAny { to: object, from: other, bytes },
        18 => {
            let (x, y) = (random.usize(..8), random.usize(..8));
            let (width, height) = (random.usize(..64), random.usize(..32));
            Call::CopyFlat { memory: object, x, y, width, height, to_host: random.bool() }
        }
        19 | 20 => {
            let width = *random.choice(&[1, 2, 4]).unwrap();
            Call::Fill { memory: object, offset, count: bytes / 4, width, value: random.u32(..), stream: on }
        }
        21 => {
            let (width, height) = (random.usize(..70), random.usize(..8));
            Call::FillFlat { memory: object, pitch: 64, width, height, value: random.u8(..) }
        }
        22 => Call::CreateStream { flags: random.u32(..3), priority: random.i32(-6..3) },
        23 => Call::DestroyStream { stream: on },
        24 => Call::QueryStream { stream: on },
        25 => Call::SynchronizeStream { stream: on },
        26 => Call::WaitEvent { stream: on, event: object },
        27 => Call::StreamFacts { stream: on },
        28 => Call::HostFunction { stream: on },
        29 => Call::CreateEvent { flags: random.u32(..5) },
        30 => Call::DestroyEvent { event: object },
        31 => Call::Record { event: object, stream: on },
        32 => Call::QueryEvent { event: object },
        33 => Call::SynchronizeEvent { event: object },
        34 => Call::Elapsed { start: object, end: other },
        35 => Call::Load { is_good: random.u32(..4) > 0 },
        36 => Call::Unload { module: object },
        37 | 38 => Call::Function { module: random.usize(..3), name: random.usize(..NAMES.len()) },
        39 => Call::Global { module: object, is_there: random.bool() },
        40 => Call::FunctionAttribute { function: object, attribute: random.u32(..12) },
        41 => {
            let value = random.i32(-1..100_000);
            Call::SetFunctionAttribute { function: object, attribute: random.u32(6..10), value }
        }
        42 => Call::Occupancy { function: object, block: random.i32(-1..1100), shared: bytes },
        43..47 => {
            let (grid, block) = (random.u32(..4), *random.choice(&[1, 32, 33, 64, 1024, 1025]).unwrap());
            let shared = *random.choice(&[0, 128, 4096, 1 << 20]).unwrap();
            Call::Launch { function: object, to: on, from: other, grid, block, shared, stream: random.usize(..7) }
        }
        47 => Call::Capture { stream: on, mode: random.u32(..4) },
        48 => Call::EndCapture { stream: on },
        49 => Call::IsCapturing { stream: on },
        50 => Call::CreateGraph { flags: random.u32(..2) },
        51 => match random.u32(..3) {
            0 => Call::DestroyGraph { graph: object },
            1 => Call::DestroyNode { node: object },
            _ => Call::DestroyExec { exec: object },
        },
        52 => Call::CloneGraph { graph: object },
        53 => Call::AddEmpty { graph: object },
        54 => {
            if random.bool() {
                Call::Nodes { graph: object }
            } else {
                Call::NodeKind { node: object }
            }
        }
        55 => Call::Instantiate { graph: object },
        56 => Call::LaunchGraph { exec: object, stream: on },
        _ => match random.u32(..3) {
            0 => Call::Pinned { bytes },
            1 => Call::Synchronize,
            _ => Call::NoContext,
        },
    }
}
