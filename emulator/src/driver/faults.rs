//! Fault injection: rules that make calls and kernels fail, so that tests of code above the driver see what a faulty
//! device does rarely. A rule selects a launch, an allocation or another call by its number or its kernel.
//!
//! A rule is `PLACE=FAULT`. Rules are separated by commas, and the first that matches counts. Places are `launch:7`
//! (the seventh kernel that the process starts, including those of graphs), `launch:7+` (that one and all later ones)
//! and `launch@saxpy` (each start of that kernel). Likewise there are `alloc:3` (device memory, from pools or not),
//! `copy:2` (calls that copy), `load:1` (modules), `function:1` (the first use of a kernel, because a device may load
//! its code only then), `info:1` (queries of free memory), `context:1` (requests for a device's primary context) and
//! `stream:1` (creation of streams). A device's number and a slash before the place, as in `1/launch:7+`, limit the
//! rule to that device; the counts include all devices.
//!
//! `wait` and `hold` are not faults. With `wait`, loading a module waits for the running kernels, as it may on a
//! device. `hold` applies to calls that wait for running kernels (frees, unloading and such loads; the place is
//! `wait:1`). Meanwhile the other calls of the process have to wait too, as they do if a driver holds a lock. Calls
//! that only wait for work on the device are exempt.
//!
//! `@FILE` reads the rules from a file, which may be empty. A process reads it when it starts.

use std::{
    fs,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

use super::status::Status;

/// The rules, and the counts of the places so far.
#[derive(Debug, Default)]
pub struct Injection {
    rules: Vec<Rule>,
    launches: AtomicU64,
    allocations: AtomicU64,
    copies: AtomicU64,
    loads: AtomicU64,
    functions: AtomicU64,
    infos: AtomicU64,
    contexts: AtomicU64,
    waits: AtomicU64,
    streams: AtomicU64,
}

/// A rule: where a fault is injected, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    device: Option<u32>,
    site: Site,
    which: Which,
    fault: Injected,
}

/// A kind of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    Launch,
    Allocation,
    Copy,
    Load,
    /// The first use of a kernel.
    Function,
    /// A query of free memory.
    Info,
    /// A request for a device's primary context.
    Context,
    /// A call that waits for running kernels.
    Wait,
    /// The creation of a stream.
    Stream,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Which {
    Number(u64),
    From(u64),
    Kernel(String),
}

/// What happens at the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Injected {
    /// The device becomes unusable, with this error.
    Sticky(Status),
    /// The call fails; the device stays usable.
    OutOfMemory,
    /// The call fails with this error, because the driver can't use the code; the device stays usable.
    Refused(Status),
    /// The kernel runs until its context ends.
    Hang,
    /// The call waits for running kernels, then continues.
    Wait,
    /// While the call waits, other calls do not begin.
    Hold,
}

/// Faults by name. `device-lost` returns the error of a device that fell off its bus.
const FAULTS: [(&str, Injected); 14] = [
    ("illegal-address", Injected::Sticky(Status::IllegalAddress)),
    ("misaligned-address", Injected::Sticky(Status::MisalignedAddress)),
    ("trap", Injected::Sticky(Status::LaunchFailed)),
    ("assert", Injected::Sticky(Status::Assert)),
    ("timeout", Injected::Sticky(Status::LaunchTimeout)),
    ("uncorrectable-memory", Injected::Sticky(Status::EccUncorrectable)),
    ("device-lost", Injected::Sticky(Status::Unknown)),
    ("out-of-memory", Injected::OutOfMemory),
    ("invalid-ptx", Injected::Refused(Status::InvalidPtx)),
    ("no-binary", Injected::Refused(Status::NoBinaryForGpu)),
    ("init-failed", Injected::Refused(Status::SharedObjectInitFailed)),
    ("hang", Injected::Hang),
    ("wait", Injected::Wait),
    ("hold", Injected::Hold),
];

impl Injection {
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Counts a place; returns what to inject there, with the place's number.
    pub(super) fn next(&self, device: u32, site: Site, kernel: Option<&str>) -> Option<(Injected, u64)> {
        if self.rules.is_empty() {
            return None;
        }
        let count = match site {
            Site::Launch => &self.launches,
            Site::Allocation => &self.allocations,
            Site::Copy => &self.copies,
            Site::Load => &self.loads,
            Site::Function => &self.functions,
            Site::Info => &self.infos,
            Site::Context => &self.contexts,
            Site::Wait => &self.waits,
            Site::Stream => &self.streams,
        };
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let fits = |rule: &&Rule| {
            rule.site == site
                && rule.device.is_none_or(|only| only == device)
                && match &rule.which {
                    Which::Number(wanted) => *wanted == number,
                    Which::From(first) => *first <= number,
                    Which::Kernel(name) => kernel == Some(name.as_str()),
                }
        };
        self.rules.iter().find(fits).map(|rule| (rule.fault, number))
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, fault) = text.split_once('=').ok_or_else(expected)?;
        let named = FAULTS.iter().find(|(name, _)| *name == fault.trim());
        let fault = named.map(|(_, fault)| *fault).ok_or_else(expected)?;
        let (device, place) = match place.split_once('/') {
            Some((device, place)) => (Some(device.trim().parse().map_err(|_| expected())?), place.trim()),
            None => (None, place.trim()),
        };
        let (site, which) = match place.split_once('@') {
            Some(("launch", kernel)) if !kernel.is_empty() => (Site::Launch, Which::Kernel(kernel.to_owned())),
            Some(_) => return Err(expected()),
            None => {
                let (site, number) = place.split_once(':').ok_or_else(expected)?;
                (site.parse()?, number.parse()?)
            }
        };
        let is_possible = match fault {
            Injected::Sticky(_) => site != Site::Wait,
            Injected::OutOfMemory => {
                matches!(site, Site::Allocation | Site::Load | Site::Function | Site::Context | Site::Stream)
            }
            Injected::Refused(_) => matches!(site, Site::Load | Site::Function),
            Injected::Hang => site == Site::Launch,
            Injected::Wait => site == Site::Load,
            Injected::Hold => site == Site::Wait,
        };
        if is_possible { Ok(Self { device, site, which, fault }) } else { Err(expected()) }
    }
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "launch" => Ok(Self::Launch),
            "alloc" => Ok(Self::Allocation),
            "copy" => Ok(Self::Copy),
            "load" => Ok(Self::Load),
            "function" => Ok(Self::Function),
            "info" => Ok(Self::Info),
            "context" => Ok(Self::Context),
            "wait" => Ok(Self::Wait),
            "stream" => Ok(Self::Stream),
            _ => Err(expected()),
        }
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, is_first) = text.strip_suffix('+').map_or((text, false), |digits| (digits, true));
        let number = digits.parse().ok().filter(|number| *number > 0).ok_or_else(expected)?;
        Ok(if is_first { Self::From(number) } else { Self::Number(number) })
    }
}

/// Parses rules separated by commas, or reads them from `@FILE`.
pub fn rules(text: &str) -> Result<Vec<Rule>, String> {
    let Some(path) = text.strip_prefix('@') else { return listed(text) };
    let text = fs::read_to_string(path).map_err(|error| format!("expected a readable file: {error}"))?;
    if text.trim().is_empty() { Ok(Vec::new()) } else { listed(&text) }
}

fn listed(text: &str) -> Result<Vec<Rule>, String> {
    text.split(',').map(|rule| rule.trim().parse()).collect()
}

fn expected() -> String {
    let faults = FAULTS.map(|(name, _)| name).join(", ");
    format!(
        "expected rules like launch:7=illegal-address, launch@saxpy=hang, alloc:3+=out-of-memory, copy:1=device-lost, load:1=wait, \
         info:1=device-lost or context:1=device-lost, separated by commas, as 1/launch:7=trap for device 1 alone, with one of the faults {faults}; hang is for launches, \
         out-of-memory for allocations, loads, functions, contexts and streams, invalid-ptx, no-binary and init-failed for loads and functions, wait for loads, \
         hold for waits (wait:1=hold); or @ and the file that has such rules"
    )
}

#[cfg(test)]
mod tests {
    use super::{Injected, Injection, Site, rules};
    use crate::driver::status::Status;

    #[test]
    fn rules_name_a_place_by_number_or_kernel() {
        let injection = Injection::new(rules("launch:2=trap, launch@saxpy=hang,alloc:2+=out-of-memory").unwrap());
        let launch = |name| injection.next(0, Site::Launch, Some(name)).map(|(fault, _)| fault);
        assert_eq!(launch("store"), None);
        assert_eq!(launch("saxpy"), Some(Injected::Sticky(Status::LaunchFailed)));
        assert_eq!(launch("saxpy"), Some(Injected::Hang));
        let allocations = (0..3).map(|_| injection.next(0, Site::Allocation, None).is_some());
        assert_eq!(allocations.collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn a_rule_may_be_for_one_device_alone() {
        let injection = Injection::new(rules("1/copy:1+=device-lost").unwrap());
        let copies = [0, 1, 2, 1].map(|device| injection.next(device, Site::Copy, None).is_some());
        assert_eq!(copies, [false, true, false, true]);
    }

    #[test]
    fn rules_may_lie_in_a_file_which_may_be_empty() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let named = format!("@{}", file.path().display());
        assert_eq!(rules(&named).unwrap(), []);
        std::fs::write(file.path(), "function:1=no-binary, context:2+=out-of-memory\n").unwrap();
        assert_eq!(rules(&named).unwrap(), rules("function:1=no-binary,context:2+=out-of-memory").unwrap());
        std::fs::write(file.path(), "context:1=no-binary").unwrap();
        assert!(rules(&named).unwrap_err().contains("launch:7=illegal-address"));
        let gone = named + ".gone";
        assert!(rules(&gone).unwrap_err().contains("file"), "{gone}");
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_told_what_would() {
        for text in [
            "",
            "launch",
            "launch:0=trap",
            "launch:x=trap",
            "launch:1=fire",
            "alloc@a=trap",
            "copy:1=hang",
            "launch:1=wait",
            "load:1=hold",
            "wait:1=trap",
            "info:1=out-of-memory",
            "launch:1=no-binary",
            "launch@=trap",
            "x/launch:1=trap",
        ] {
            assert!(rules(text).unwrap_err().contains("launch:7=illegal-address"), "{text}");
        }
        assert!(rules("launch:1=out-of-memory").is_err());
    }
}
