//! Texel formats: one, two or four channels of one type.

/// Type of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    U8,
    U16,
    U32,
    S8,
    S16,
    S32,
    F16,
    F32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub channel: Channel,
    /// Number of channels: 1, 2 or 4.
    pub channels: u32,
}

impl Channel {
    pub fn bytes(self) -> u32 {
        match self {
            Channel::U8 | Channel::S8 => 1,
            Channel::U16 | Channel::S16 | Channel::F16 => 2,
            Channel::U32 | Channel::S32 | Channel::F32 => 4,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Channel::F16 | Channel::F32)
    }

    /// Reports whether reads may convert its integers to floats from 0 or -1 to 1.
    pub fn is_normalizable(self) -> bool {
        matches!(self, Channel::U8 | Channel::U16 | Channel::S8 | Channel::S16)
    }
}

impl Format {
    pub fn texel_bytes(self) -> u32 {
        self.channel.bytes() * self.channels
    }
}
