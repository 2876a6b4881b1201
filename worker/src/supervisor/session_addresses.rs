//! Under which addresses clients reach the sessions of this worker.

use std::net::IpAddr;

use gpufleet_schema::sessions_seen::address;
use tokio::net::UdpSocket;

use super::Supervisor;

impl Supervisor {
    /// Returns the addresses under which clients may reach a port of this worker, the most likely first.
    pub(super) async fn session_addresses(&self, port: u16) -> Vec<String> {
        self.session_hosts().await.iter().map(|host| address(host, port)).collect()
    }

    /// Returns the hosts of [`Self::session_addresses`].
    pub(super) async fn session_hosts(&self) -> Vec<String> {
        if let Some(host) = &self.config.session_advertise {
            return vec![host.clone()];
        }
        let listens_on = self.config.session_listen.ip();
        if !listens_on.is_unspecified() {
            return vec![listens_on.to_string()];
        }
        let local = self.local_address().await.map(|ip| ip.to_string());
        local.into_iter().chain([self.config.host.clone()]).collect()
    }

    /// Returns the address of this machine from which it reaches the broker.
    async fn local_address(&self) -> Option<IpAddr> {
        for node in self.config.broker.nodes() {
            if let Some(ip) = local_address_towards(node.host(), node.port()).await {
                return Some(ip);
            }
        }
        None
    }
}

/// Returns the address of this machine from which it reaches another. No packet is sent.
async fn local_address_towards(host: &str, port: u16) -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).await.ok()?;
    socket.connect((host, port)).await.ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_reaches_itself_from_its_loopback_address() {
        assert_eq!(local_address_towards("127.0.0.1", 5672).await, Some("127.0.0.1".parse().unwrap()));
    }
}
