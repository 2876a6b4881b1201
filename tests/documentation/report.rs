//! The results of the blocks: counts, and failures with their locations.

use std::{collections::BTreeMap, fmt};

#[derive(Debug, Default)]
pub struct Report {
    blocks: usize,
    /// The number of blocks for each way of checking.
    counts: BTreeMap<&'static str, usize>,
    not_executed: BTreeMap<String, usize>,
    pub faults: Vec<Fault>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub page: String,
    pub line: usize,
    pub what: String,
}

impl Report {
    pub fn of(blocks: usize) -> Self {
        Self { blocks, ..Self::default() }
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn not_executed(&mut self, reason: &str) {
        *self.not_executed.entry(reason.to_owned()).or_default() += 1;
    }

    pub fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        other.counts.into_iter().for_each(|(what, count)| *self.counts.entry(what).or_default() += count);
        other.not_executed.into_iter().for_each(|(why, count)| *self.not_executed.entry(why).or_default() += count);
        self.faults.extend(other.faults);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} code blocks", self.blocks)?;
        self.counts.iter().try_for_each(|(what, count)| writeln!(f, "{count:5} {what}"))?;
        writeln!(f, "{:5} blocks not executed", self.not_executed.values().sum::<usize>())?;
        self.not_executed.iter().try_for_each(|(reason, count)| writeln!(f, "{count:9} {reason}"))?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "\n{fault}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.line, self.what)
    }
}
