//! Outputs that can be fetched after the reply has gone.

use serde::{Deserialize, Serialize};

use crate::{BlobDigest, Dtype};

/// The kept outputs of a job, as its last event reports them to the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct KeptOutputs {
    /// Time until which they can be fetched, in milliseconds since 1970 by the worker's clock.
    pub expires_ms: i64,
    /// In the order of the task.
    pub outputs: Vec<KeptOutput>,
}

/// A kept output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct KeptOutput {
    pub name: String,
    pub dtype: Dtype,
    /// Extents, slowest dimension first (C order).
    pub shape: Vec<u64>,
    pub data: KeptData,
}

/// Where the bytes of a kept output are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeptData {
    /// In this event: little-endian elements.
    Inline(
        #[serde(with = "serde_bytes")]
        #[cfg_attr(feature = "json-schema", schemars(with = "Vec<u8>"))]
        Vec<u8>,
    ),
    /// In the blob store.
    Blob(BlobDigest),
}
