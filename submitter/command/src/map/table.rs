//! The Parquet file that is read.

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    },
    basic::Compression,
    file::metadata::RowGroupMetaData,
};

use super::{Batches, Mapping, batches, mapping, unusable};
use crate::{complaint::Complaint, exit::Exit, files};

/// A Parquet file that is open.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
}

impl Table {
    pub fn open(path: &Path) -> Result<Self, Complaint> {
        let file = File::open(path).map_err(|problem| files::unreadable(path, &problem))?;
        if file.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err(unusable("read", path, &"it is not a plain file").hint("give the path of one Parquet file"));
        }
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
            .map_err(|problem| unusable("read", path, &problem).hint("give a Parquet file that is not encrypted"))?;
        Ok(Self { path: path.to_owned(), file, metadata })
    }

    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    pub fn rows(&self) -> u64 {
        self.row_groups().iter().map(rows_of).sum()
    }

    /// The compression of the first column, which the written file has too.
    pub fn compression(&self) -> Compression {
        let first = self.row_groups().first().and_then(|group| group.columns().first());
        first.map_or(Compression::SNAPPY, |column| column.compression())
    }

    /// The length of the file, and when it was last changed, in nanoseconds since 1970. They identify its contents.
    pub fn stamp(&self) -> Result<(u64, u128), Complaint> {
        let stamp = self.file.metadata().and_then(|metadata| Ok((metadata.len(), metadata.modified()?)));
        let (length, modified) = stamp.map_err(|problem| files::unreadable(&self.path, &problem))?;
        Ok((length, modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()))
    }

    /// The rows of a batch of the columns that are read.
    pub fn batch_rows(&self, mapping: &Mapping) -> u64 {
        let mask = self.mask(mapping);
        let bytes = |group: &RowGroupMetaData| {
            let columns = group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
            columns.map(|(_, column)| u64::try_from(column.uncompressed_size()).unwrap_or(0)).sum::<u64>()
        };
        let element_bytes = mapping.kernel().element_bytes_max();
        batches::rows_each(self.rows(), self.row_groups().iter().map(bytes).sum(), element_bytes)
    }

    /// Refuses nulls in the kernel's columns, as far as the file's statistics tell of them.
    pub fn check_nulls(&self, mapping: &Mapping) -> Result<(), Complaint> {
        for input in mapping.input_columns().iter().filter(|_| !mapping.fills_nulls()) {
            // The kernel's columns are plain numbers, so each has one leaf.
            let Some(leaf) = self.leaf(input.index) else { continue };
            let counts = self.row_groups().iter().filter_map(|group| group.column(leaf).statistics()?.null_count_opt());
            match counts.sum::<u64>() {
                0 => {}
                count => return Err(mapping::nulls(&input.column, &format!("the file counts {count}"))),
            }
        }
        Ok(())
    }

    /// Reads the batches from the one with this index on.
    pub fn read(
        &self,
        mapping: &Mapping,
        batches: &Batches,
        first: usize,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Complaint>> + use<>, Complaint> {
        let failed = {
            let path = self.path.clone();
            move |problem: &dyn std::fmt::Display| unusable("read", &path, &problem)
        };
        let (groups, offset) = self.groups_from(batches.rows(first).start);
        let file = self.file.try_clone().map_err(|problem| files::unreadable(&self.path, &problem))?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(self.mask(mapping))
            .with_row_groups(groups.collect())
            .with_offset(offset)
            .with_batch_size(usize::try_from(batches.rows_each()).unwrap_or(usize::MAX))
            .build()
            .map_err(|problem| failed(&problem))?;
        let sizes: Vec<Range<u64>> = (first..batches.count()).map(|index| batches.rows(index)).collect();
        Ok(reader.zip(sizes).map(move |(batch, rows)| {
            let batch = batch.map_err(|problem| failed(&problem))?;
            match rows.end - rows.start {
                wanted if wanted == batch.num_rows() as u64 => Ok(batch),
                wanted => Err(Complaint::new(
                    Exit::Internal,
                    format!("the Parquet reader returned {} rows instead of {wanted}", batch.num_rows()),
                )),
            }
        }))
    }

    /// The row groups from the one with this row on, and the rows to skip in the first of them.
    fn groups_from(&self, row: u64) -> (Range<usize>, usize) {
        let mut start = 0;
        for (index, group) in self.row_groups().iter().enumerate() {
            if row < start + rows_of(group) {
                return (index..self.row_groups().len(), (row - start) as usize);
            }
            start += rows_of(group);
        }
        (0..0, 0)
    }

    fn leaf(&self, root: usize) -> Option<usize> {
        let schema = self.metadata.parquet_schema();
        (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root)
    }

    fn mask(&self, mapping: &Mapping) -> ProjectionMask {
        ProjectionMask::roots(self.metadata.parquet_schema(), mapping.read().iter().copied())
    }

    fn row_groups(&self) -> &[RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }
}

fn rows_of(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
