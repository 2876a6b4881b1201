//! The columns of an exported Parquet file: the fields of `gpufleet history -o json`, with those of the failure beside the others.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    builder::{MapBuilder, StringBuilder},
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use chrono::{DateTime, Utc};
use gpufleet_ledger::JobRow;

/// How the values of a column are taken from the jobs. Any of them may be unknown.
enum Values {
    Text(fn(&JobRow) -> Option<String>),
    Number(fn(&JobRow) -> Option<u64>),
    Flag(fn(&JobRow) -> Option<bool>),
    Time(fn(&JobRow) -> Option<DateTime<Utc>>),
    Labels,
}

use Values::{Flag, Labels, Number, Text, Time};

const ZONE: &str = "UTC";

const COLUMNS: [(&str, Values); 33] = [
    ("job_id", Text(|job| Some(job.job_id.to_string()))),
    ("state", Text(|job| Some(job.state.to_string()))),
    ("name", Text(|job| job.name.clone())),
    ("labels", Labels),
    ("pool", Text(|job| job.pool.clone())),
    ("priority", Text(|job| job.priority.clone())),
    ("program", Text(|job| job.program.clone())),
    ("kernel", Text(|job| job.kernel.clone())),
    ("client", Text(|job| job.client.clone())),
    ("user_id", Text(|job| job.user_id.clone())),
    ("created_at", Time(|job| Some(job.created_at))),
    ("submitted_at", Time(|job| job.submitted_at)),
    ("started_at", Time(|job| job.started_at)),
    ("finished_at", Time(|job| job.finished_at)),
    ("attempts", Number(|job| Some(job.attempts.into()))),
    ("attempt", Number(|job| job.attempt.map(u64::from))),
    ("worker", Text(|job| job.worker.clone())),
    ("is_unheard", Flag(|job| Some(job.is_unheard))),
    ("device", Number(|job| job.device.map(u64::from))),
    ("device_name", Text(|job| job.device_name.clone())),
    ("emulated", Flag(|job| job.emulated)),
    ("failure_verdict", Text(|job| job.failure.as_ref().map(|failure| failure.verdict.clone()))),
    ("failure_code", Text(|job| job.failure.as_ref().map(|failure| failure.code.clone()))),
    ("failure_message", Text(|job| job.failure.as_ref().map(|failure| failure.message.clone()))),
    ("failure_line", Number(|job| job.failure.as_ref().and_then(|failure| failure.line).map(u64::from))),
    ("input_bytes", Number(|job| job.input_bytes)),
    ("output_bytes", Number(|job| job.output_bytes)),
    ("queue_us", Number(|job| job.queue_us)),
    ("kernel_us", Number(|job| job.kernel_us)),
    ("total_us", Number(|job| job.total_us)),
    ("failure_detail", Text(|job| job.failure.as_ref().and_then(|failure| failure.detail.clone()))),
    ("lease_bytes", Number(|job| job.lease_bytes)),
    ("environment", Text(|job| job.host_program.as_ref().and_then(|program| program.place()).map(str::to_owned))),
];

pub fn schema() -> SchemaRef {
    let fields = COLUMNS.iter().map(|(name, values)| Field::new(*name, values.data_type(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

pub fn batch(schema: &SchemaRef, jobs: &[JobRow]) -> Result<RecordBatch, ArrowError> {
    let columns = COLUMNS.iter().map(|(_, values)| values.array(jobs)).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns)
}

impl Values {
    fn data_type(&self) -> DataType {
        match self {
            Text(_) => DataType::Utf8,
            Number(_) => DataType::Int64,
            Flag(_) => DataType::Boolean,
            Time(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())),
            Labels => {
                let entries = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)];
                let entries = Field::new("entries", DataType::Struct(entries.into()), false);
                DataType::Map(Arc::new(entries), false)
            }
        }
    }

    fn array(&self, jobs: &[JobRow]) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Text(of) => Arc::new(jobs.iter().map(of).collect::<StringArray>()),
            // A ledger's numbers are Postgres' bigint, which has a sign.
            Number(of) => Arc::new(jobs.iter().map(|job| of(job).map(u64::cast_signed)).collect::<Int64Array>()),
            Flag(of) => Arc::new(jobs.iter().map(of).collect::<BooleanArray>()),
            Time(of) => {
                let times = jobs.iter().map(|job| of(job).map(|time| time.timestamp_micros()));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone(ZONE))
            }
            Labels => {
                let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
                for job in jobs {
                    for (key, value) in &job.labels {
                        maps.keys().append_value(key);
                        maps.values().append_value(value);
                    }
                    maps.append(true)?;
                }
                Arc::new(maps.finish())
            }
        })
    }
}

/// The names of the columns.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|(name, _)| *name)
}
