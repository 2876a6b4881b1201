//! What a heartbeat says of a worker's sessions: how many each pool takes, their memory, and where clients reach them.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::PoolName;

/// The sessions that a worker takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionsSeen {
    /// Host names and addresses at which clients reach the worker's open sessions, in the order in which they try them.
    pub hosts: Vec<String>,
    /// The first and the last port of open sessions. Both are 0 if each session takes any free port.
    pub ports: [u16; 2],
    /// The pools that take sessions.
    pub pools: Vec<PoolSessions>,
}

/// The sessions of one pool on a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolSessions {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub pool: PoolName,
    /// The number of sessions that may be open at a time.
    pub open_max: u32,
}

/// The sessions of one pool on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceSessions {
    pub open: u32,
    /// The device memory that they take: their leases, and `overhead_bytes` for each.
    pub memory_bytes: u64,
    /// The device memory that they may take together.
    pub memory_bytes_max: u64,
    /// The memory that each takes beside its lease: a CUDA context.
    pub overhead_bytes: u64,
}

impl DeviceSessions {
    /// Returns the largest lease that the device has if no session is open.
    pub fn lease_bytes_max(&self) -> u64 {
        self.memory_bytes_max.saturating_sub(self.overhead_bytes)
    }

    /// Returns the largest lease that the open sessions leave.
    pub fn lease_bytes_free(&self) -> u64 {
        self.lease_bytes_max().saturating_sub(self.memory_bytes)
    }
}

/// Returns the address of a port of a host, which is a name or an IP address.
pub fn address(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_whatever_the_host_is() {
        assert_eq!(address("gpu-7", 9480), "gpu-7:9480");
        assert_eq!(address("10.0.0.7", 9480), "10.0.0.7:9480");
        assert_eq!(address("::1", 9480), "[::1]:9480");
    }

    #[test]
    fn a_lease_leaves_room_for_its_context() {
        let sessions = DeviceSessions { open: 1, memory_bytes: 30, memory_bytes_max: 100, overhead_bytes: 10 };
        assert_eq!((sessions.lease_bytes_max(), sessions.lease_bytes_free()), (90, 60));
        let full = DeviceSessions { memory_bytes: 95, ..sessions };
        assert_eq!(full.lease_bytes_free(), 0);
    }
}
