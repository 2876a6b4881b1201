//! Converts measures to the columns of a table and back.

use chrono::{DateTime, Utc};

use super::measures::{Measures, Sum};
use super::stages::Stages;

/// Columns of rows to write: their dimensions and their measures.
#[derive(Default)]
pub(crate) struct RollupColumns<'a> {
    pub(crate) at: Vec<DateTime<Utc>>,
    pub(crate) pool: Vec<&'a str>,
    pub(crate) dimension: Vec<&'a str>,
    pub(crate) value: Vec<&'a str>,
    pub(crate) sums: [Vec<i64>; Sum::COUNT],
    pub(crate) stages: Vec<Vec<u8>>,
}

/// A row that was read.
pub(crate) struct RollupRecord {
    pub(crate) at: DateTime<Utc>,
    pub(crate) pool: String,
    pub(crate) dimension: String,
    pub(crate) value: String,
    pub(crate) succeeded: i64,
    pub(crate) failed: i64,
    pub(crate) cancelled: i64,
    pub(crate) expired: i64,
    pub(crate) dead: i64,
    pub(crate) verdict_user: i64,
    pub(crate) verdict_timeout: i64,
    pub(crate) verdict_out_of_memory: i64,
    pub(crate) verdict_device: i64,
    pub(crate) verdict_infrastructure: i64,
    pub(crate) lost: i64,
    pub(crate) superseded: i64,
    pub(crate) device_us: i64,
    pub(crate) queue_us: i64,
    pub(crate) input_bytes: i64,
    pub(crate) output_bytes: i64,
    pub(crate) charged_us: i64,
    pub(crate) stages: Vec<u8>,
}

impl<'a> RollupColumns<'a> {
    pub(crate) fn push(&mut self, at: DateTime<Utc>, [pool, dimension, value]: [&'a str; 3], measures: &Measures) {
        self.at.push(at);
        self.pool.push(pool);
        self.dimension.push(dimension);
        self.value.push(value);
        for (column, sum) in self.sums.iter_mut().zip(measures.sums) {
            column.push(sum);
        }
        self.stages.push(measures.stages.encode());
    }
}

impl RollupRecord {
    pub(crate) fn measures(&self) -> Result<Measures, sqlx::Error> {
        let stages = Stages::decode(&self.stages).ok_or_else(|| {
            let problem = "the times of the stages are damaged, or a newer release wrote them; upgrade this program";
            sqlx::Error::ColumnDecode { index: "stages".to_owned(), source: problem.into() }
        })?;
        let sums = [
            self.succeeded,
            self.failed,
            self.cancelled,
            self.expired,
            self.dead,
            self.verdict_user,
            self.verdict_timeout,
            self.verdict_out_of_memory,
            self.verdict_device,
            self.verdict_infrastructure,
            self.lost,
            self.superseded,
            self.device_us,
            self.queue_us,
            self.input_bytes,
            self.output_bytes,
            self.charged_us,
        ];
        Ok(Measures { sums, stages })
    }
}
