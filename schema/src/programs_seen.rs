//! What a heartbeat says of a worker's host programs: what it offers, and what runs.

use serde::{Deserialize, Serialize};

use crate::{JobId, PoolName};

/// The host programs that a worker takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProgramsSeen {
    /// The pools that take host programs.
    pub pools: Vec<PoolPrograms>,
}

/// The host programs of one pool on a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolPrograms {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub pool: PoolName,
    /// The number of programs that the worker takes at a time.
    pub taken_max: u32,
    /// Those of them that have a device.
    pub running: u32,
    /// Those of them that wait for a device.
    pub waiting: u32,
    /// The environments that it offers; none if the pool's programs run in containers.
    #[serde(default)]
    pub environments: Vec<String>,
    /// The container images that it offers; none if the pool's programs run in environments.
    #[serde(default)]
    pub images: Vec<String>,
}

impl PoolPrograms {
    /// The names of the environments and images that a program may name.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.environments.iter().chain(&self.images).map(String::as_str)
    }
}

/// The host program that has a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceProgram {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub job_id: JobId,
    /// Its command, such as `python train.py`.
    pub label: String,
}
