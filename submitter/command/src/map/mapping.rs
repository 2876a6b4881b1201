//! Which columns the kernel reads and writes, decided before anything is read or sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use gpufleet::{
    Array,
    schema::{Dtype, Number},
};
use gpufleet_kernels::spelling;

use super::{
    Options, elements,
    kernel::{Buffer, Kernel},
};
use crate::{complaint::Complaint, exit::Exit, spec::ColumnSpec};

/// The columns of a kernel, and those of the written table.
#[derive(Debug)]
pub struct Mapping {
    kernel: Arc<Kernel>,
    inputs: Vec<Input>,
    outputs: BTreeMap<String, String>,
    /// The columns to read, by their index in the file.
    read: Vec<usize>,
    written: Vec<Written>,
    schema: SchemaRef,
    fill_null: Option<Number>,
}

/// A column that the kernel reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub buffer: String,
    pub column: String,
    /// Its index in the file.
    pub index: usize,
}

/// A column of the written table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Written {
    /// A column of the file, by its index in a batch that was read.
    Kept(usize),
    /// An output of the kernel, by its name.
    Output(String),
}

impl Mapping {
    pub fn plan(options: &Options, schema: &Schema) -> Result<Self, Complaint> {
        let kernel = Arc::new(Kernel::plan(options)?);
        unambiguous(schema)?;
        let inputs = inputs(&kernel, &options.columns, schema, options.fill_null)?;
        let outputs = outputs(&kernel, &options.out_columns)?;
        let kept = kept(options, schema)?;
        let read: Vec<usize> = kept
            .iter()
            .copied()
            .chain(inputs.iter().map(|input| input.index))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let (written, fields) = written(&kernel, schema, &read, &kept, &outputs)?;
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Ok(Self { kernel, inputs, outputs, read, written, schema, fill_null: options.fill_null })
    }

    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    pub fn input_columns(&self) -> &[Input] {
        &self.inputs
    }

    /// The column of each output.
    pub fn output_columns(&self) -> &BTreeMap<String, String> {
        &self.outputs
    }

    pub fn fills_nulls(&self) -> bool {
        self.fill_null.is_some()
    }

    /// The columns to read, by their index in the file, in ascending order.
    pub fn read(&self) -> &[usize] {
        &self.read
    }

    /// The schema of the written table.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The kernel's inputs in a batch that was read. Its first row has this number in the file.
    pub fn inputs(&self, batch: &RecordBatch, first_row: u64) -> Result<Vec<(String, Array)>, Complaint> {
        self.inputs.iter().map(|input| Ok((input.buffer.clone(), self.input(input, batch, first_row)?))).collect()
    }

    fn input(&self, input: &Input, batch: &RecordBatch, first_row: u64) -> Result<Array, Complaint> {
        let column = batch.column(self.position(input.index));
        if self.fill_null.is_none()
            && let Some(row) = (0..column.len()).find(|row| column.is_null(*row)).filter(|_| column.null_count() > 0)
        {
            return Err(nulls(&input.column, &format!("row {} is null", first_row + row as u64)));
        }
        elements::take(column, self.fill_null)
            .ok_or_else(|| internal(format!("column {} changed its type to {}", input.column, column.data_type())))
    }

    /// The batch of the written table, from the batch that was read and the kernel's outputs.
    pub fn output(&self, batch: &RecordBatch, outputs: &[(String, Array)]) -> Result<RecordBatch, Complaint> {
        let column = |written: &Written| match written {
            Written::Kept(position) => Ok(batch.column(*position).clone()),
            Written::Output(name) => output_column(name, outputs, batch.num_rows()),
        };
        let columns = self.written.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(|problem| internal(problem.to_string()))
    }

    /// The position of a column of the file in a batch that was read.
    fn position(&self, index: usize) -> usize {
        self.read.binary_search(&index).expect("the kernel's columns are read")
    }
}

fn output_column(name: &str, outputs: &[(String, Array)], rows: usize) -> Result<ArrayRef, Complaint> {
    let found = outputs.iter().find(|(output, _)| output == name).map(|(_, array)| array);
    let column = found.map(elements::column).transpose().ok().flatten().flatten();
    column.filter(|column| column.len() == rows).ok_or_else(|| {
        Complaint::new(Exit::FleetFailed, format!("the worker did not return output {name} with {rows} elements"))
            .hint("check that the worker and this command have the same version")
    })
}

/// The complaint about nulls in a column of the kernel.
pub fn nulls(column: &str, what: &str) -> Complaint {
    Complaint::bad_input(format!("column {column} has nulls, and kernels take only numbers: {what}"))
        .hint("give the number to compute with in their place, such as --fill-null 0; or remove the rows first")
}

fn internal(problem: String) -> Complaint {
    Complaint::new(Exit::Internal, problem)
}

/// Parquet allows two columns of one name, but then a name would not say which.
fn unambiguous(schema: &Schema) -> Result<(), Complaint> {
    let mut names = BTreeSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        Some(field) => Err(Complaint::bad_input(format!("the file has two columns named {}", field.name()))
            .hint("rename one of them first")),
        None => Ok(()),
    }
}

fn inputs(
    kernel: &Kernel,
    columns: &[ColumnSpec],
    schema: &Schema,
    fill_null: Option<Number>,
) -> Result<Vec<Input>, Complaint> {
    let given: Vec<&Buffer> = kernel.inputs().collect();
    let mut bound = bind("input", kernel, &given, columns)?;
    let mut inputs = Vec::new();
    for buffer in given {
        let column = bound.remove(&buffer.name).ok_or_else(|| {
            Complaint::bad_input(format!("no column was given for input {} of the kernel", buffer.name))
                .hint(format!("give --columns a column for each input of {}", kernel.signature()))
        })?;
        let index = index_of(schema, &column)?;
        check_type(schema.field(index), buffer)?;
        if let Some(number) = fill_null {
            check_fill(number, buffer.dtype)?;
        }
        inputs.push(Input { buffer: buffer.name.clone(), column, index });
    }
    Ok(inputs)
}

fn check_type(field: &Field, buffer: &Buffer) -> Result<(), Complaint> {
    if elements::dtype_of(field.data_type()) == Some(buffer.dtype) {
        return Ok(());
    }
    let (column, name) = (field.name(), &buffer.name);
    let problem =
        format!("column {column} is {}, but input {name} of the kernel is {}", field.data_type(), buffer.dtype);
    Err(Complaint::bad_input(problem).hint(format!("convert the column to {} first", buffer.dtype)))
}

fn check_fill(number: Number, dtype: Dtype) -> Result<(), Complaint> {
    number.write(dtype, &mut Vec::new()).map_err(|problem| {
        Complaint::bad_input(format!("--fill-null: {problem}")).hint("give a number that fits the kernel's inputs")
    })
}

/// The column of each output.
fn outputs(kernel: &Kernel, columns: &[ColumnSpec]) -> Result<BTreeMap<String, String>, Complaint> {
    let returned: Vec<&Buffer> = kernel.outputs().collect();
    let mut bound = bind("output", kernel, &returned, columns)?;
    for output in &returned {
        bound.entry(output.name.clone()).or_insert_with(|| output.name.clone());
    }
    let mut names = BTreeSet::new();
    match bound.values().find(|column| !names.insert(*column)) {
        Some(column) => Err(Complaint::bad_input(format!("two outputs of the kernel would be column {column}"))
            .hint("give them different names with --out-columns")),
        None => Ok(bound),
    }
}

/// The column of each buffer that has one. Columns without a buffer's name take the other buffers, in order.
fn bind(
    what: &str,
    kernel: &Kernel,
    buffers: &[&Buffer],
    columns: &[ColumnSpec],
) -> Result<BTreeMap<String, String>, Complaint> {
    let names = || buffers.iter().map(|buffer| buffer.name.as_str());
    let mut bound = BTreeMap::new();
    for ColumnSpec { buffer, column } in columns.iter().filter(|spec| spec.buffer.is_some()) {
        let buffer = buffer.as_deref().unwrap_or_default();
        if !names().any(|name| name == buffer) {
            let hint = spelling::closest(buffer, names()).map(|name| format!("did you mean {name}? "));
            return Err(Complaint::bad_input(format!("the kernel has no {what} {buffer}")).hint(format!(
                "{}the kernel is {}",
                hint.unwrap_or_default(),
                kernel.signature()
            )));
        }
        if bound.insert(buffer.to_owned(), column.clone()).is_some() {
            return Err(Complaint::bad_input(format!("{what} {buffer} has two columns")).hint("keep one of them"));
        }
    }
    let mut free = names().filter(|name| !bound.contains_key(*name)).collect::<Vec<_>>().into_iter();
    for ColumnSpec { column, .. } in columns.iter().filter(|spec| spec.buffer.is_none()) {
        let buffer = free.next().ok_or_else(|| {
            let (given, known) = (columns.len(), names().collect::<Vec<_>>().join(", "));
            Complaint::bad_input(format!("{given} columns are given for the {what}s of the kernel, which are {known}"))
                .hint(format!("the kernel is {}", kernel.signature()))
        })?;
        bound.insert(buffer.to_owned(), column.clone());
    }
    Ok(bound)
}

fn index_of(schema: &Schema, column: &str) -> Result<usize, Complaint> {
    schema.index_of(column).map_err(|_| {
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let hint = match spelling::closest(column, names()) {
            Some(closest) => format!("did you mean {closest}?"),
            None => format!("its columns are {}", names().collect::<Vec<_>>().join(", ")),
        };
        Complaint::bad_input(format!("the file has no column {column}")).hint(hint)
    })
}

/// The existing columns to write, by their index in the file.
fn kept(options: &Options, schema: &Schema) -> Result<Vec<usize>, Complaint> {
    let dropped = options.drop.iter().map(|column| index_of(schema, column)).collect::<Result<Vec<_>, _>>()?;
    Ok((0..schema.fields().len()).filter(|index| !options.drop_all && !dropped.contains(index)).collect())
}

/// The written columns. An output takes the place of an existing column of its name; other outputs come last.
fn written(
    kernel: &Kernel,
    schema: &Schema,
    read: &[usize],
    kept: &[usize],
    outputs: &BTreeMap<String, String>,
) -> Result<(Vec<Written>, Vec<Field>), Complaint> {
    let output_of = |column: &str| kernel.outputs().find(|output| outputs[&output.name] == column);
    let mut columns = Vec::new();
    for index in kept {
        let field = schema.field(*index);
        columns.push(match output_of(field.name()) {
            Some(output) => output_field(output, field.name())?,
            None => {
                let position = read.binary_search(index).expect("kept columns are read");
                (Written::Kept(position), field.clone())
            }
        });
    }
    let replaced: BTreeSet<String> = columns.iter().map(|(_, field)| field.name().clone()).collect();
    for output in kernel.outputs().filter(|output| !replaced.contains(&outputs[&output.name])) {
        columns.push(output_field(output, &outputs[&output.name])?);
    }
    Ok(columns.into_iter().unzip())
}

/// Nullable like the columns that other writers make, so that tables of both can be joined.
fn output_field(output: &Buffer, column: &str) -> Result<(Written, Field), Complaint> {
    let data_type = elements::type_of(output.dtype).ok_or_else(|| {
        Complaint::bad_input(format!(
            "output {} of the kernel is {}, which Arrow does not have",
            output.name, output.dtype
        ))
        .hint("submit the kernel with `gpufleet submit`, which writes .npy files")
    })?;
    Ok((Written::Output(output.name.clone()), Field::new(column, data_type, true)))
}

#[cfg(test)]
mod tests;
