//! The lines of gpufleet itself, on the standard error of the command.

use std::time::Duration;

use gpufleet::{
    schema::{JobId, RanOn, SessionOffer, SessionUse},
    session::Rejected,
};

use crate::{complaint::Complaint, output, quantity};

/// Prints lines that begin with `gpufleet:`.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// Leaves out what is neither an error nor a warning.
    pub is_quiet: bool,
}

impl Lines {
    pub fn info(self, line: &str) {
        if !self.is_quiet {
            self.warn(line);
        }
    }

    pub fn warn(self, line: &str) {
        output::note(&format!("gpufleet: {}", output::visible(line)));
    }

    pub fn complain(self, complaint: &Complaint) {
        for line in complaint.render(false).trim_end().lines() {
            self.warn(line);
        }
    }
}

/// `NVIDIA H100 80GB HBM3 on gpu-7, 8 GiB for 1 h, 0.4 ms away (job 7d6002819b6b)`
pub fn opened(offer: &SessionOffer, round_trip: Duration) -> String {
    format!(
        "{}, {} for {}, {:.1} ms away (job {})",
        place(&offer.ran_on),
        size(offer.memory_bytes),
        time(offer.time_limit_ms),
        round_trip.as_secs_f64() * 1e3,
        short(offer.job_id)
    )
}

/// `NVIDIA H100 80GB HBM3 on gpu-7`
pub fn place(RanOn { worker, device_name, emulated, .. }: &RanOn) -> String {
    match emulated {
        true => format!("EMULATED device (runs on the CPU of worker {worker})"),
        false => format!("{device_name} on {worker}"),
    }
}

/// `session ended after 41.2 s: 18432 calls, 512 waits, 96.0 MiB sent, 4.00 MiB received, GPU busy 12.3 s`
pub fn summary(open: Duration, used: &SessionUse) -> String {
    let open = u64::try_from(open.as_micros()).unwrap_or(u64::MAX);
    format!(
        "session ended after {}: {} calls, {} waits, {} sent, {} received, GPU busy {}",
        quantity::micros(open),
        used.calls,
        used.waits,
        quantity::bytes(used.sent_bytes),
        quantity::bytes(used.received_bytes),
        quantity::micros(used.busy_us)
    )
}

/// The line about a process that gets no device.
pub fn rejected(rejected: &Rejected) -> String {
    match rejected {
        Rejected::TooMany { sessions, .. } => format!("{rejected}. Use --sessions {}.", sessions + 1),
        Rejected::Unreachable { .. } => rejected.to_string(),
    }
}

/// The end of an id, which every command accepts. Ids of jobs that were submitted at the same time begin with the same digits.
pub fn short(job_id: JobId) -> String {
    let id = job_id.to_string();
    id.rsplit_once('-').map_or_else(|| id.clone(), |(_, end)| end.to_owned())
}

/// `8 GiB`, if it is a whole number of a unit.
fn size(bytes: u64) -> String {
    let whole = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| bytes >> shift > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| quantity::bytes(bytes), |(unit, shift)| format!("{} {unit}", bytes >> shift))
}

/// `1 h`, if it is a whole number of a unit.
fn time(ms: u64) -> String {
    let whole = [("h", 3_600_000), ("min", 60_000), ("s", 1000)]
        .into_iter()
        .find(|(_, unit_ms)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms));
    whole.map_or_else(|| format!("{ms} ms"), |(unit, unit_ms)| format!("{} {unit}", ms / unit_ms))
}

#[cfg(test)]
mod tests {
    use gpufleet::session::Process;

    use super::*;

    fn offer(emulated: bool) -> SessionOffer {
        SessionOffer {
            version: gpufleet::schema::VERSION,
            job_id: "0198f2c1-0b90-71cc-952e-7d6002819b6b".parse().unwrap(),
            attempt: 1,
            addresses: Vec::new(),
            certificate: String::new(),
            token: String::new(),
            ran_on: RanOn {
                worker: "gpu-7".parse().unwrap(),
                device: 0,
                device_name: "NVIDIA H100 80GB HBM3".to_owned(),
                emulated,
            },
            memory_bytes: 8 << 30,
            time_limit_ms: 3_600_000,
            connect_within_ms: 30_000,
        }
    }

    #[test]
    fn the_first_line_names_the_device_or_says_that_it_is_emulated() {
        let away = Duration::from_micros(420);
        assert_eq!(
            opened(&offer(false), away),
            "NVIDIA H100 80GB HBM3 on gpu-7, 8 GiB for 1 h, 0.4 ms away (job 7d6002819b6b)"
        );
        assert!(opened(&offer(true), away).starts_with("EMULATED device (runs on the CPU of worker gpu-7), 8 GiB"));
    }

    #[test]
    fn the_last_line_has_the_counters() {
        let used = SessionUse {
            calls: 18_432,
            waits: 512,
            sent_bytes: 96 << 20,
            received_bytes: 4 << 20,
            busy_us: 12_300_000,
            ..SessionUse::default()
        };
        assert_eq!(
            summary(Duration::from_millis(41_200), &used),
            "session ended after 41.2 s: 18432 calls, 512 waits, 96.0 MiB sent, 4.00 MiB received, GPU busy 12.3 s"
        );
    }

    #[test]
    fn a_process_too_many_is_named_with_the_option_that_helps() {
        let process = Process { id: 4711, name: "python".to_owned() };
        let line = |sessions| rejected(&Rejected::TooMany { process: process.clone(), sessions });
        assert_eq!(
            line(1),
            "process 4711 (python) is the second that uses the GPU, but this run has 1 session. Use --sessions 2."
        );
        assert!(line(10).contains("is the 11th that uses the GPU, but this run has 10 sessions. Use --sessions 11."));
    }

    #[test]
    fn sizes_and_times_are_whole_numbers_where_they_can_be() {
        assert_eq!([512 << 20, 3 << 30, 1 << 40, 1536].map(size), ["512 MiB", "3 GiB", "1 TiB", "1.50 KiB"]);
        assert_eq!([7_200_000, 5_400_000, 90_000, 1500].map(time), ["2 h", "90 min", "90 s", "1500 ms"]);
    }
}
