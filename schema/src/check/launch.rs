//! Checks a launch: its entry, its grid, blocks and clusters, and its arguments.

use super::{Field, Invalid, check_name, invalid};
use crate::{
    Arg, Block, Grid, Launch, Program,
    bounds::{
        ARGS_MAX, ARGUMENT_ALIGN_MAX, ARGUMENT_BYTES_MAX, BLOCK_MAX, CLUSTER_BLOCKS_MAX, ENTRY_BYTES_MAX, GRID_MAX,
        REPEAT_MAX, SHARED_BYTES_MAX, THREADS_PER_BLOCK_MAX,
    },
    launch::is_symbol,
};

impl Launch {
    /// Checks the launch. `buffer` returns the number of elements of a buffer.
    pub(super) fn check(&self, field: Field<'_>, buffer: impl Fn(&str) -> Option<u64>) -> Result<(), Invalid> {
        self.grid.check(format_args!("{field}.grid"))?;
        self.check_cluster(format_args!("{field}.grid.cluster"))?;
        self.block.check(format_args!("{field}.block"))?;
        if self.shared_bytes > SHARED_BYTES_MAX {
            return invalid(
                format!("{field}.shared_bytes"),
                format!(
                    "{} bytes exceed the largest shared memory of any device ({SHARED_BYTES_MAX} bytes)",
                    self.shared_bytes
                ),
            );
        }
        if !(1..=REPEAT_MAX).contains(&self.repeat) {
            return invalid(
                format!("{field}.repeat"),
                format!("{} is out of range; give 1 to {REPEAT_MAX}", self.repeat),
            );
        }
        if self.args.len() > ARGS_MAX {
            return invalid(format!("{field}.args"), format!("too many arguments; the maximum is {ARGS_MAX}"));
        }
        for (index, arg) in self.args.iter().enumerate() {
            arg.check(format_args!("{field}.args[{index}]"), &buffer)?;
        }
        match self.args.iter().map(Arg::size).sum::<u64>() {
            0..=ARGUMENT_BYTES_MAX => Ok(()),
            bytes => invalid(
                format!("{field}.args"),
                format!(
                    "the arguments take {bytes} bytes, but CUDA passes at most {ARGUMENT_BYTES_MAX} to a kernel; move the rest into a buffer"
                ),
            ),
        }
    }

    fn check_cluster(&self, field: Field<'_>) -> Result<(), Invalid> {
        if self.cluster.is_empty() {
            return Ok(());
        }
        let extents: Vec<u64> = self.cluster.iter().map(|extent| u64::from(*extent)).collect();
        check_extents(field, &extents)?;
        match extents.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent)) {
            Some(1..=CLUSTER_BLOCKS_MAX) => {}
            _ => {
                return invalid(
                    field,
                    format!("{extents:?} exceeds {CLUSTER_BLOCKS_MAX} blocks, the maximum size of a cluster"),
                );
            }
        }
        // Blocks that cover threads are rounded up to whole clusters.
        let Grid::Blocks(blocks) = &self.grid else { return Ok(()) };
        for ((axis, cluster), name) in extents.into_iter().enumerate().zip(["x", "y", "z"]) {
            let blocks = blocks.get(axis).copied().unwrap_or(1);
            if !u64::from(blocks).is_multiple_of(cluster) {
                return invalid(
                    field,
                    format!(
                        "the grid has {blocks} blocks in {name}, which is not a multiple of the cluster size {cluster}"
                    ),
                );
            }
        }
        Ok(())
    }
}

impl Arg {
    /// The size of the kernel's parameter in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Buffer(_) | Self::BufferAt { .. } | Self::Progress(_) => 8,
            Self::Scalar(dtype, _) => dtype.size() as u64,
            Self::Bytes { bytes, .. } => bytes.len() as u64,
        }
    }

    fn check(&self, field: Field<'_>, buffer: impl Fn(&str) -> Option<u64>) -> Result<(), Invalid> {
        match self {
            Self::Buffer(name) | Self::BufferAt { name, .. } => {
                check_name(field, name)?;
                let Some(elements) = buffer(name) else {
                    return invalid(field, format!("the task has no buffer named {name:?}"));
                };
                match self {
                    Self::BufferAt { offset, .. } if *offset >= elements => invalid(
                        field,
                        format!(
                            "offset {offset} is outside buffer {name:?}, which has {elements} elements; the offset counts elements, not bytes"
                        ),
                    ),
                    _ => Ok(()),
                }
            }
            Self::Progress(0) => invalid(field, "the total of a progress counter is at least 1"),
            Self::Progress(_) => Ok(()),
            Self::Scalar(dtype, number) => match number.write(*dtype, &mut Vec::with_capacity(8)) {
                Ok(()) => Ok(()),
                Err(problem) => invalid(field, problem.to_string()),
            },
            Self::Bytes { bytes, align } => {
                if !align.is_power_of_two() || *align > ARGUMENT_ALIGN_MAX {
                    return invalid(
                        field,
                        format!("alignment {align} is invalid; give a power of two up to {ARGUMENT_ALIGN_MAX}"),
                    );
                }
                match bytes.len() {
                    0 => invalid(field, "the structure is empty"),
                    length if !length.is_multiple_of(*align as usize) => invalid(
                        field,
                        format!(
                            "{length} bytes are not a multiple of the alignment {align}; pad the structure as the compiler does"
                        ),
                    ),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Grid {
    fn check(&self, field: Field<'_>) -> Result<(), Invalid> {
        let extents: Vec<u64> = match self {
            Self::Cover(extents) => extents.clone(),
            Self::Blocks(blocks) => blocks.iter().map(|extent| u64::from(*extent)).collect(),
        };
        check_extents(field, &extents)?;
        let Self::Blocks(blocks) = self else { return Ok(()) };
        check_maxima(field, "blocks", blocks, GRID_MAX)
    }
}

impl Block {
    fn check(&self, field: Field<'_>) -> Result<(), Invalid> {
        let Self::Threads(threads) = self else { return Ok(()) };
        check_extents(field, &threads.iter().map(|extent| u64::from(*extent)).collect::<Vec<_>>())?;
        check_maxima(field, "threads", threads, BLOCK_MAX)?;
        match threads.iter().product::<u32>() {
            1..=THREADS_PER_BLOCK_MAX => Ok(()),
            many => invalid(field, format!("{many} threads in a block; the maximum is {THREADS_PER_BLOCK_MAX}")),
        }
    }
}

/// Checks a symbol of the module, or in CUDA C++ a name expression. An expression selects from the code: without braces
/// it adds no code of its own, which the program's signature would not cover.
pub(super) fn check_entry(field: Field<'_>, entry: &str, program: &Program<'_>) -> Result<(), Invalid> {
    const PUNCTUATION: &str = "_$:<>,()[]*&+-~!.' ";
    match entry.len() {
        0 => return invalid(field, "empty"),
        1..=ENTRY_BYTES_MAX => {}
        bytes => return invalid(field, format!("{bytes} bytes long; the maximum is {ENTRY_BYTES_MAX}")),
    }
    if is_symbol(entry) {
        return Ok(());
    }
    if !matches!(program, Program::Source { .. }) {
        let kind = program.kind();
        return invalid(
            field,
            format!(
                "{entry:?} is not a kernel symbol; only CUDA C++ source accepts name expressions, so name the symbol in the {kind}"
            ),
        );
    }
    match entry.chars().find(|c| !c.is_ascii_alphanumeric() && !PUNCTUATION.contains(*c)) {
        None => Ok(()),
        Some(strange) => invalid(
            field,
            format!(
                "a name expression must not contain {strange:?}; use letters, digits and {}",
                PUNCTUATION.trim_end()
            ),
        ),
    }
}

fn check_extents(field: Field<'_>, extents: &[u64]) -> Result<(), Invalid> {
    if !(1..=3).contains(&extents.len()) {
        return invalid(field, format!("has {} dimensions; give 1 to 3", extents.len()));
    }
    match extents.iter().position(|extent| *extent == 0) {
        Some(axis) => invalid(field, format!("the {} extent is zero", ["x", "y", "z"][axis])),
        None => Ok(()),
    }
}

fn check_maxima(field: Field<'_>, what: &str, extents: &[u32], maxima: [u32; 3]) -> Result<(), Invalid> {
    for ((extent, max), axis) in extents.iter().zip(maxima).zip(["x", "y", "z"]) {
        if *extent > max {
            return invalid(field, format!("{extent} {what} in {axis}; the CUDA maximum is {max}"));
        }
    }
    Ok(())
}
