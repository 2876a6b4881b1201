//! Line information: maps an instruction to the source line that it comes from (`.loc`).

use crate::ptx::tree::{Location, Position};

/// Maximum number of inlined calls that a report names.
const CHAIN_MAX: usize = 4;

/// The lines of one function.
#[derive(Debug, Default)]
pub struct Lines {
    /// Locations with their first instruction; each is valid until the next.
    starts: Vec<(u32, Location)>,
}

impl Lines {
    /// Records that the instructions from `pc` on come from `location`.
    pub fn push(&mut self, pc: u32, location: Location) {
        // If the compiler knows of no line, the one before is still the best to name.
        if location.at.line != 0 {
            self.starts.push((pc, location));
        }
    }

    /// Updates the positions after instructions have moved.
    pub fn moved(&mut self, to: impl Fn(u32) -> u32) {
        self.starts.iter_mut().for_each(|(pc, _)| *pc = to(*pc));
    }

    /// Describes where instruction `pc` comes from: `kernel.cu:2, inlined at kernel.cu:5`.
    pub fn describe(&self, pc: u32, files: &[(u32, String)]) -> Option<String> {
        let mut index = self.starts.partition_point(|(start, _)| *start <= pc).checked_sub(1)?;
        let location = self.starts[index].1;
        let mut text = name(location.at, files)?;
        let mut next = location.inlined_at;
        for _ in 0..CHAIN_MAX {
            let Some(caller) = next else { break };
            text.push_str(", inlined at ");
            text.push_str(&name(caller, files)?);
            // The caller's own location came earlier, and says where the caller was inlined in turn.
            let found = self.starts[..index].iter().rposition(|(_, known)| known.at == caller);
            next = found.and_then(|found| self.starts[found].1.inlined_at);
            index = found.unwrap_or(0);
        }
        Some(text)
    }
}

/// Returns the file's name and line without the folder, which belongs to the machine that compiled the code.
fn name(position: Position, files: &[(u32, String)]) -> Option<String> {
    let (_, path) = files.iter().find(|(number, _)| *number == position.file)?;
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    Some(format!("{file}:{}", position.line))
}

#[cfg(test)]
mod tests {
    use super::{Lines, Location, Position};

    fn at(line: u32) -> Position {
        Position { file: 1, line, column: 5 }
    }

    #[test]
    fn inlined_calls_are_followed_to_the_outermost() {
        let mut lines = Lines::default();
        lines.push(0, Location { at: at(10), inlined_at: None });
        lines.push(2, Location { at: at(5), inlined_at: Some(at(13)) });
        lines.push(2, Location { at: at(2), inlined_at: Some(at(5)) });
        lines.push(4, Location { at: at(0), inlined_at: None });
        let files = [(1, "/home/someone/kernel.cu".to_owned())];
        assert_eq!(lines.describe(1, &files).unwrap(), "kernel.cu:10");
        let inlined = "kernel.cu:2, inlined at kernel.cu:5, inlined at kernel.cu:13";
        assert_eq!(lines.describe(5, &files).unwrap(), inlined);
        assert_eq!(lines.describe(5, &[]), None);
    }
}
