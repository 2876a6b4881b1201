//! How much of the letters' bodies is kept.

/// Counts the bytes of bodies that somebody has.
#[derive(Debug)]
pub(super) struct Bodies {
    bytes: usize,
    bytes_max: usize,
}

impl Bodies {
    pub(super) fn at_most(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max }
    }

    /// What is kept stays, even if it is more.
    pub(super) fn bound(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The body, if there is room for it.
    pub(super) fn keep(&mut self, body: Vec<u8>) -> Option<Vec<u8>> {
        let bytes = self.bytes.checked_add(body.len()).filter(|bytes| *bytes <= self.bytes_max)?;
        self.bytes = bytes;
        Some(body)
    }

    /// Makes room again, if the body was kept.
    pub(super) fn forget(&mut self, body: Option<Vec<u8>>) {
        self.bytes -= body.map_or(0, |body| body.len());
    }
}
