//! The forwarding history of a job, which its message carries in headers.

use std::collections::BTreeMap;

use gpufleet_schema::topology::{HEADER_FORWARDING_WAITS, HEADER_FORWARDS};
use gpufleet_transport::{HeaderValue, Properties};

/// How often a job was forwarded and delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardingHistory {
    /// How often a worker forwarded the job to a device class. For a session: at how many workers it has waited for memory.
    pub forwards: u32,
    /// How often the job waited because no fitting class had a worker. Forwarding does not reset this count, so that a job that is sent
    /// back and forth between workers that can't run it ends eventually.
    pub waits: u32,
}

impl ForwardingHistory {
    /// Reads the history from the headers. Invalid values count as zero.
    pub fn read(properties: &Properties) -> Self {
        let count = |name| properties.header_int(name).and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
        Self { forwards: count(HEADER_FORWARDS), waits: count(HEADER_FORWARDING_WAITS) }
    }

    /// Writes the history to the headers, without values that are zero.
    pub fn write(self, headers: &mut BTreeMap<String, HeaderValue>) {
        for (name, count) in [(HEADER_FORWARDS, self.forwards), (HEADER_FORWARDING_WAITS, self.waits)] {
            if count > 0 {
                headers.insert(name.to_owned(), count.into());
            }
        }
    }

    pub fn forwarded(self) -> Self {
        Self { forwards: self.forwards.saturating_add(1), ..self }
    }

    pub fn waited(self) -> Self {
        Self { waits: self.waits.saturating_add(1), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_after_a_journey_in_headers() {
        let history = ForwardingHistory::default().forwarded().forwarded().waited();
        assert_eq!(history, ForwardingHistory { forwards: 2, waits: 1 });
        let mut properties = Properties::default();
        history.write(&mut properties.headers);
        assert_eq!(ForwardingHistory::read(&properties), history);
        ForwardingHistory::default().write(&mut properties.headers);
        properties.headers.insert(HEADER_FORWARDS.to_owned(), HeaderValue::Int(-1));
        assert_eq!(ForwardingHistory::read(&properties), ForwardingHistory { forwards: 0, waits: 1 });
    }
}
