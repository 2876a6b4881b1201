//! The value of `--session-listen`: the address and the ports on which sessions wait for their clients.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    str::FromStr,
};

/// The first port that needs no privileges.
const UNPRIVILEGED_PORT_MIN: u16 = 1024;

/// An address with a range of ports. Each session takes the first free one; port 0 is any that is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    ip: IpAddr,
    first: u16,
    last: u16,
}

/// A text that is not an address with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give an IP address with a port or a range of ports, such as 0.0.0.0:9480-9499")]
pub struct InvalidListen;

impl Listen {
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the first and the last port, or 0 and 0 for any that is free.
    pub fn ports(&self) -> [u16; 2] {
        [self.first, self.last]
    }

    /// Returns the number of sessions that can listen at a time.
    pub fn places(&self) -> usize {
        if self.first == 0 { usize::MAX } else { usize::from(self.last - self.first) + 1 }
    }

    /// Reports whether only root may bind some of the ports.
    pub(super) fn needs_root(&self) -> bool {
        (1..UNPRIVILEGED_PORT_MIN).contains(&self.first)
    }

    /// Listens on the first free port.
    pub(super) fn bind(&self) -> io::Result<TcpListener> {
        let mut last_error = io::ErrorKind::AddrInUse.into();
        for port in self.first..=self.last {
            match TcpListener::bind(SocketAddr::new(self.ip, port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }
}

/// Any free port of this machine alone.
impl Default for Listen {
    fn default() -> Self {
        Self { ip: Ipv4Addr::LOCALHOST.into(), first: 0, last: 0 }
    }
}

impl FromStr for Listen {
    type Err = InvalidListen;

    fn from_str(text: &str) -> Result<Self, InvalidListen> {
        let (address, last) = match text.rsplit_once('-') {
            Some((address, last)) => (address, Some(last.parse().map_err(|_| InvalidListen)?)),
            None => (text, None),
        };
        let address: SocketAddr = address.parse().map_err(|_| InvalidListen)?;
        let first = address.port();
        let last = last.unwrap_or(first);
        // Port 0 starts no range, because it stands for all free ports.
        if last < first || (first == 0 && last > 0) {
            return Err(InvalidListen);
        }
        Ok(Self { ip: address.ip(), first, last })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.first).fmt(f)?;
        if self.last > self.first { write!(f, "-{}", self.last) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_ports_prints_as_it_is_typed() {
        for text in ["127.0.0.1:0", "0.0.0.0:9480-9499", "[::1]:9480", "[::]:1023-1024"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert_eq!("127.0.0.1:0".parse(), Ok(Listen::default()));
        assert_eq!("10.0.0.1:9480-9480".parse::<Listen>().unwrap().to_string(), "10.0.0.1:9480");
    }

    #[test]
    fn what_is_no_address_with_ports_is_refused() {
        for text in ["", "9480", "0.0.0.0", "localhost:9480", "0.0.0.0:9499-9480", "0.0.0.0:0-9", "0.0.0.0:1-", "::1:9"]
        {
            assert_eq!(text.parse::<Listen>(), Err(InvalidListen), "{text}");
        }
    }

    #[test]
    fn only_ports_below_1024_need_root() {
        let needs_root = |text: &str| text.parse::<Listen>().unwrap().needs_root();
        assert_eq!(
            ["0.0.0.0:0", "0.0.0.0:443", "0.0.0.0:1000-2000", "0.0.0.0:1024"].map(needs_root),
            [false, true, true, false]
        );
    }

    #[test]
    fn the_first_free_port_of_the_range_is_taken() {
        // A range of two ports, of which the first is taken. The system may give the second one to another program meanwhile.
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let first = taken.local_addr().unwrap().port();
        let alone = Listen { ip: Ipv4Addr::LOCALHOST.into(), first, last: first };
        assert_eq!(alone.bind().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let range = Listen { last: first.saturating_add(20), ..alone };
        let bound = range.bind().unwrap().local_addr().unwrap().port();
        assert!((first + 1..=range.last).contains(&bound));
    }
}
