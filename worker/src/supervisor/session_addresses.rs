//! Under which addresses clients reach the sessions of this worker.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::Supervisor;

impl Supervisor {
    /// Returns the addresses under which clients may reach a port of this worker, the most likely first.
    pub(super) fn session_addresses(&self, port: u16) -> Vec<String> {
        if let Some(host) = &self.config.session_advertise {
            return vec![with_port(host, port)];
        }
        let listens_on = self.config.session_listen.ip();
        if !listens_on.is_unspecified() {
            return vec![SocketAddr::new(listens_on, port).to_string()];
        }
        let mut nodes = self.config.broker.nodes().iter();
        let towards_broker = nodes.find_map(|node| local_address_towards(node.host(), node.port()));
        let local = towards_broker.map(|ip| SocketAddr::new(ip, port).to_string());
        local.into_iter().chain([with_port(&self.config.host, port)]).collect()
    }
}

fn with_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Returns the address of this machine from which it reaches another. No packet is sent.
fn local_address_towards(host: &str, port: u16) -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect((host, port)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_whatever_the_host_is() {
        assert_eq!(with_port("gpu-7", 9480), "gpu-7:9480");
        assert_eq!(with_port("10.0.0.7", 9480), "10.0.0.7:9480");
        assert_eq!(with_port("::1", 9480), "[::1]:9480");
        assert_eq!(local_address_towards("127.0.0.1", 5672), Some("127.0.0.1".parse().unwrap()));
    }
}
