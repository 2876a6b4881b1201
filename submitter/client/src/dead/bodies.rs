//! Bounds the bytes of the bodies that are kept.

/// Counts the bytes of the bodies that are kept.
#[derive(Debug)]
pub(super) struct Bodies {
    bytes: usize,
    bytes_max: usize,
}

impl Bodies {
    pub(super) fn at_most(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max }
    }

    /// Changes the bound for further bodies. Bodies that are already kept stay, even if they exceed it.
    pub(super) fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Counts the body and returns it, if there is room for it.
    pub(super) fn keep(&mut self, body: Vec<u8>) -> Option<Vec<u8>> {
        let bytes = self.bytes.checked_add(body.len()).filter(|bytes| *bytes <= self.bytes_max)?;
        self.bytes = bytes;
        Some(body)
    }

    /// Stops counting a body, if it was kept.
    pub(super) fn forget(&mut self, body: Option<Vec<u8>>) {
        self.bytes -= body.map_or(0, |body| body.len());
    }
}
