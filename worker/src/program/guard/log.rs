//! Keeps the first part of a program's output in a file.

use std::{fs::File, io::Write};

/// Maximum size of the file, in bytes.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// The file of a program's output.
#[derive(Debug)]
pub(super) struct Log<F = File> {
    file: F,
    bytes_max: u64,
    bytes: u64,
    dropped_bytes: u64,
}

impl<F: Write> Log<F> {
    pub(super) fn new(file: F) -> Self {
        Self { file, bytes_max: LOG_BYTES_MAX, bytes: 0, dropped_bytes: 0 }
    }

    /// Returns how many bytes the file has.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many bytes the file should have had, but has not.
    pub(super) fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Appends as much as there is room for. After a failed write the rest is dropped, so that the file has no gap.
    pub(super) fn append(&mut self, mut output: &[u8]) {
        if self.dropped_bytes == 0 {
            let room = self.bytes_max - self.bytes;
            let mut fitting = &output[..output.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
            while !fitting.is_empty() {
                match self.file.write(fitting) {
                    Ok(0) => break,
                    Ok(written) => {
                        self.bytes += written as u64;
                        (fitting, output) = (&fitting[written..], &output[written..]);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        eprintln!("failed to write the log of a program: {error}");
                        break;
                    }
                }
            }
        }
        self.dropped_bytes += output.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_first_part_is_kept_and_the_rest_is_counted() {
        let mut log = Log { bytes_max: 5, ..Log::new(Vec::new()) };
        for piece in ["abc", "def", "g"] {
            log.append(piece.as_bytes());
        }
        assert_eq!((log.file.as_slice(), log.bytes(), log.dropped_bytes()), (b"abcde".as_slice(), 5, 2));
    }

    /// A disk that has room for a few bytes, and for more later.
    struct Full(Vec<usize>);

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.0.pop().ok_or_else(|| io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_on_a_full_disk_has_no_gap() {
        let mut log = Log::new(Full(vec![2]));
        log.append(b"abc");
        log.file.0.push(1);
        log.append(b"d");
        assert_eq!((log.bytes(), log.dropped_bytes()), (2, 2));
    }
}
