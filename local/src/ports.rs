//! Free ports on the loopback interface.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    net::{Ipv4Addr, TcpListener},
};

use crate::error::LocalError;

/// Below Linux' ephemeral range (from 32768): an outgoing connection never takes the port of a service that is being restarted.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;
/// Far more than needed: the range has 12 000 ports.
const TRIES: u32 = 200;

/// A port that nobody listens on now. Another process may take it before the caller does: starting has to be retried.
pub(crate) fn free() -> Result<u16, LocalError> {
    for _ in 0..TRIES {
        let random = RandomState::new().build_hasher().finish();
        let port = FIRST + u16::try_from(random % u64::from(LAST - FIRST)).expect("the remainder is below 12 000");
        if is_free(port) {
            return Ok(port);
        }
    }
    Err(LocalError::NoPort { tries: TRIES })
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
