//! Human-readable sizes, and the error for a message that is too large.

use std::fmt;

use crate::{Data, Task, bounds::MESSAGE_BYTES_MAX};

/// Bytes in powers of 1024, with three digits: `1023 B`, `4.00 MiB`, `19.1 MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// A task or message above [`MESSAGE_BYTES_MAX`], with its largest buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLarge {
    what: &'static str,
    bytes: u64,
    /// The largest buffers, in descending order.
    largest: Vec<(String, u64)>,
}

/// Number of buffers that the message names; more would hide the largest.
const LARGEST_SHOWN: usize = 2;

impl TooLarge {
    /// Advice for the producer.
    pub const ADVICE: &str = "send large arrays by claim check through a blob store (--blobs STORE or GPUFLEET_BLOBS, a folder or S3 bucket \
        shared with the workers); or split the job, use a smaller dtype (f16, u8), or create the data on the device with zeros or fill";

    /// A task whose encoded form has `bytes` bytes.
    pub fn task(task: &Task<'_>, bytes: u64) -> Self {
        let inline = task.buffers.iter().filter_map(|buffer| match &buffer.data {
            Data::Inline(inline) => Some((buffer.name.clone(), inline.resolved_len(buffer.dtype) as u64)),
            Data::Zeros | Data::Fill(_) | Data::Blob(_) | Data::Output(_) => None,
        });
        let mut largest: Vec<(String, u64)> = inline.collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        largest.truncate(LARGEST_SHOWN);
        Self { what: "task", bytes, largest }
    }

    /// A message of this length with unknown contents.
    pub const fn message(bytes: u64) -> Self {
        Self { what: "message", bytes, largest: Vec::new() }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut value = self.0 as f64;
        let mut unit = "B";
        for next in UNITS {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        let decimals = match value {
            _ if unit == "B" => 0,
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bytes, largest } = self;
        let (max, beyond) = (MESSAGE_BYTES_MAX >> 20, bytes.saturating_sub(MESSAGE_BYTES_MAX as u64));
        write!(f, "the {what} is {}, which exceeds the message limit of {max} MiB by {}", Size(*bytes), Size(beyond))?;
        let told: Vec<String> = largest.iter().map(|(name, bytes)| format!("{name} ({})", Size(*bytes))).collect();
        match told.as_slice() {
            [] => Ok(()),
            [only] => write!(f, "; its largest buffer is {only}"),
            several => write!(f, "; its largest buffers are {}", several.join(" and ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Dtype, Inline, Program};

    #[test]
    fn sizes_have_three_digits_and_a_unit() {
        let sizes = [0, 1023, 1024, 4 << 20, 20_027_000, u64::MAX].map(|bytes| Size(bytes).to_string());
        assert_eq!(sizes, ["0 B", "1023 B", "1.00 KiB", "4.00 MiB", "19.1 MiB", "16.0 EiB"]);
    }

    #[test]
    fn the_error_of_an_oversized_task_names_its_largest_buffers() {
        let buffer = |name: &str, mib: u64, inline: bool| {
            Buffer::new(
                name,
                Dtype::U8,
                vec![mib << 20],
                if inline { Data::Inline(Inline::from(vec![0; (mib << 20) as usize])) } else { Data::Zeros },
            )
        };
        let mut task = Task::new(Program::Catalog("saxpy".to_owned()));
        assert_eq!(
            TooLarge::task(&task, (16 << 20) + 312).to_string(),
            "the task is 16.0 MiB, which exceeds the message limit of 16 MiB by 312 B"
        );
        task.buffers =
            vec![buffer("w", 1, true), buffer("y", 7, true), buffer("made", 99, false), buffer("x", 12, true)];
        assert_eq!(
            TooLarge::task(&task, (20 << 20) + 200).to_string(),
            "the task is 20.0 MiB, which exceeds the message limit of 16 MiB by 4.00 MiB; \
             its largest buffers are x (12.0 MiB) and y (7.00 MiB)"
        );
        task.buffers.drain(..3);
        assert!(TooLarge::task(&task, 17 << 20).to_string().ends_with("; its largest buffer is x (12.0 MiB)"));
        assert!(TooLarge::message(17 << 20).to_string().starts_with("the message is 17.0 MiB, which exceeds"));
    }
}
