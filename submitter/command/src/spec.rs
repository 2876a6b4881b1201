//! Parses the arguments of the command line: buffers, grids, kernel arguments.
//!
//! The parsers do not read files or build jobs. clap calls each `FromStr` and prints its error as the whole message, so
//! each error states the expected form.

use std::{ops::RangeInclusive, path::PathBuf, str::FromStr};

use gpufleet::schema::{
    Arg, Block, Dtype, Number,
    bounds::{KEEP_MS_MAX, TIME_LIMIT_MS_MAX},
};

/// `f32[480,640]`: the dtype and shape of a buffer. `f32[]` is a single element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    pub dtype: Dtype,
    pub shape: Vec<u64>,
}

/// `NAME=FILE` or `NAME=FILE:f32[480,640]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    pub name: String,
    pub path: PathBuf,
    pub form: Option<Form>,
}

/// `FILE` or `FILE:f32[480,640]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArraySpec {
    pub path: PathBuf,
    pub form: Option<Form>,
}

/// `NAME=f32[1024]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZerosSpec {
    pub name: String,
    pub form: Form,
}

/// `NAME=f32[1024]:1.5`.
#[derive(Debug, Clone, PartialEq)]
pub struct FillSpec {
    pub name: String,
    pub form: Form,
    pub value: Number,
}

/// `NAME=VALUE`: a catalog kernel's scalar.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalarSpec {
    pub name: String,
    pub value: Number,
}

/// `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSpec {
    pub key: String,
    pub value: String,
}

/// `COLUMN` or `NAME=COLUMN`: a column of a table for a buffer of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSpec {
    /// `None` takes the first buffer that no other column names.
    pub buffer: Option<String>,
    pub column: String,
}

/// `8,8`: one to three positive numbers, x first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extents<T>(pub Vec<T>);

/// `256`, `16,16` or `auto`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSpec(pub Block);

/// `x,y,n:u32=1000,a=2.0,done=@progress:90`: kernel parameters in order. A name alone is a buffer, `@progress` the counter; the others are
/// scalars.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgsSpec(pub Vec<ArgSpec>);

#[derive(Debug, Clone, PartialEq)]
pub enum ArgSpec {
    Typed(Arg),
    /// A number whose dtype is that of the kernel's parameter.
    Untyped {
        name: String,
        value: Number,
    },
}

/// Why a text does not have the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

/// The kernel parameter that is the counter of a job's progress.
const PROGRESS: &str = "@progress";

fn fail<T>(problem: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(problem.into()))
}

fn name_and_rest<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), SpecError> {
    match text.split_once('=') {
        Some((name, rest)) if !name.trim().is_empty() && !rest.trim().is_empty() => Ok((name.trim(), rest.trim())),
        _ => fail(format!("expected {form}")),
    }
}

impl FromStr for Form {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let expected = "expected a dtype and a shape, such as f32[480,640]";
        let Some((dtype, extents)) = text.trim().strip_suffix(']').and_then(|text| text.split_once('[')) else {
            return fail(expected);
        };
        let dtype = self::dtype(dtype)?;
        let extents = extents.trim();
        if extents.is_empty() {
            return Ok(Self { dtype, shape: Vec::new() });
        }
        let shape = extents.split(',').map(|extent| match extent.trim().parse::<u64>() {
            Ok(0) => fail(format!("an extent is zero; {expected}")),
            Ok(extent) => Ok(extent),
            Err(_) => fail(format!("{:?} is not a whole number; {expected}", extent.trim())),
        });
        Ok(Self { dtype, shape: shape.collect::<Result<_, _>>()? })
    }
}

impl FromStr for FileSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, rest) = name_and_rest(text, "NAME=FILE or NAME=FILE:f32[480,640]")?;
        let ArraySpec { path, form } = array(rest, "NAME=FILE")?;
        Ok(Self { name: name.to_owned(), path, form })
    }
}

impl FromStr for ArraySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        array(text.trim(), "FILE or FILE:f32[480,640]")
    }
}

fn array(text: &str, expected: &str) -> Result<ArraySpec, SpecError> {
    // A file's name may contain colons. The text after the last colon is a form only if it looks like one.
    let form = text.rsplit_once(':').filter(|(_, form)| form.contains('[') && form.ends_with(']'));
    let (path, form) = match form {
        Some((path, form)) => (path, Some(form.parse()?)),
        None => (text, None),
    };
    if path.is_empty() {
        return fail(format!("the file name is missing; expected {expected}"));
    }
    Ok(ArraySpec { path: path.into(), form })
}

impl FromStr for ZerosSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, form) = name_and_rest(text, "NAME=f32[1024]")?;
        Ok(Self { name: name.to_owned(), form: form.parse()? })
    }
}

impl FromStr for FillSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let expected = "NAME=f32[1024]:1.5";
        let (name, rest) = name_and_rest(text, expected)?;
        let Some((form, value)) = rest.rsplit_once(':') else {
            return fail(format!("the value is missing; expected {expected}"));
        };
        let form: Form = form.parse()?;
        let value = number(value)?;
        fits(value, form.dtype)?;
        Ok(Self { name: name.to_owned(), form, value })
    }
}

impl FromStr for ScalarSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, value) = name_and_rest(text, "NAME=VALUE, such as a=2.0")?;
        Ok(Self { name: name.to_owned(), value: number(value)? })
    }
}

impl FromStr for LabelSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (key, value) = name_and_rest(text, "KEY=VALUE, such as team=vision")?;
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl FromStr for ColumnSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (buffer, column) = match text.split_once('=') {
            Some((buffer, column)) => (Some(buffer.trim()), column.trim()),
            None => (None, text.trim()),
        };
        if column.is_empty() || buffer.is_some_and(str::is_empty) {
            return fail("expected COLUMN or NAME=COLUMN, such as x,y or x=price,y=fee");
        }
        Ok(Self { buffer: buffer.map(str::to_owned), column: column.to_owned() })
    }
}

impl<T: FromStr + Default + PartialEq> FromStr for Extents<T> {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let expected = "expected one to three positive whole numbers in the order x,y,z, such as 640,480";
        let extents = text.split(',').map(|extent| match extent.trim().parse::<T>() {
            Ok(extent) if extent == T::default() => fail(format!("an extent is zero; {expected}")),
            Ok(extent) => Ok(extent),
            Err(_) => fail(format!("{:?} is not a whole number; {expected}", extent.trim())),
        });
        let extents = extents.collect::<Result<Vec<T>, _>>()?;
        if extents.len() > 3 { fail(format!("{} numbers given; {expected}", extents.len())) } else { Ok(Self(extents)) }
    }
}

impl FromStr for BlockSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.trim() {
            "auto" => Ok(Self(Block::Auto)),
            threads => Ok(Self(Block::Threads(threads.parse::<Extents<u32>>()?.0))),
        }
    }
}

impl FromStr for ArgsSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        text.split(',').map(arg).collect::<Result<_, _>>().map(Self)
    }
}

fn arg(text: &str) -> Result<ArgSpec, SpecError> {
    let text = text.trim();
    let expected = "expected NAME or NAME@ELEMENT for a buffer, NAME=VALUE or NAME:DTYPE=VALUE for a scalar, NAME:bytes=HEX@ALIGNMENT \
                    for a struct, NAME=@progress:TOTAL for a counter, such as x,y@16,n=1000";
    let told = |problem: SpecError| SpecError(format!("{text:?}: {problem}"));
    if let Some(total) = text.rsplit('=').next().and_then(|last| last.trim().strip_prefix(PROGRESS)) {
        return counter(total).map(ArgSpec::Typed).map_err(told);
    }
    match text.split_once('=') {
        None if !text.is_empty() && !text.contains(':') => buffer(text).map(ArgSpec::Typed),
        Some((scalar, value)) => match scalar.split_once(':') {
            Some((_, dtype)) if dtype.trim() == "bytes" => {
                structure(value).map(ArgSpec::Typed).ok_or_else(|| SpecError(format!("{text:?}: {expected}")))
            }
            Some((_, dtype)) => {
                let (dtype, value) = (self::dtype(dtype).map_err(told)?, number(value).map_err(told)?);
                fits(value, dtype)?;
                Ok(ArgSpec::Typed(Arg::Scalar(dtype, value)))
            }
            None if scalar.trim().is_empty() => fail(format!("{text:?} has no name; {expected}")),
            None => Ok(ArgSpec::Untyped { name: scalar.trim().to_owned(), value: number(value).map_err(told)? }),
        },
        _ => fail(format!("{text:?} is not a parameter; {expected}")),
    }
}

/// A dtype by its name, or by NumPy's.
fn dtype(text: &str) -> Result<Dtype, SpecError> {
    let named = match text.trim() {
        "bool_" => Dtype::Bool,
        "int8" => Dtype::I8,
        "int16" => Dtype::I16,
        "int32" => Dtype::I32,
        "int64" => Dtype::I64,
        "uint8" => Dtype::U8,
        "uint16" => Dtype::U16,
        "uint32" => Dtype::U32,
        "uint64" => Dtype::U64,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        other => {
            return other
                .parse()
                .map_err(|problem: gpufleet::schema::dtype::UnknownDtype| SpecError(problem.to_string()));
        }
    };
    Ok(named)
}

fn buffer(text: &str) -> Result<Arg, SpecError> {
    let Some((name, element)) = text.split_once('@') else { return Ok(Arg::Buffer(text.to_owned())) };
    match element.parse() {
        Ok(0) => Ok(Arg::Buffer(name.to_owned())),
        Ok(offset) => Ok(Arg::BufferAt { name: name.to_owned(), offset }),
        Err(_) => fail(format!("{text:?}: {element:?} is not an element number; expected NAME@ELEMENT, such as x@16")),
    }
}

/// `:20000`: the value of the counter when all work is done.
fn counter(total: &str) -> Result<Arg, SpecError> {
    match total.strip_prefix(':').and_then(|total| total.trim().parse().ok()) {
        Some(total) if total > 0 => Ok(Arg::Progress(total)),
        _ => fail(
            "the total of the counter must be a whole number, at least 1; expected NAME=@progress:TOTAL, such as done=@progress:20000",
        ),
    }
}

/// `0000c03f000000c0@4`: bytes in memory order, and their alignment.
fn structure(text: &str) -> Option<Arg> {
    let (digits, align) = text.split_once('@')?;
    let digits: Vec<u32> = digits.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    if digits.is_empty() || !pairs.remainder().is_empty() {
        return None;
    }
    let bytes = pairs.map(|pair| ((pair[0] << 4) | pair[1]) as u8).collect();
    Some(Arg::Bytes { bytes, align: align.parse().ok()? })
}

fn number(text: &str) -> Result<Number, SpecError> {
    match text.parse::<Number>() {
        // Infinity must be written as `inf`, because 1e400 is probably a mistake.
        Ok(Number::Float(value)) if value.is_infinite() && !text.to_ascii_lowercase().contains("inf") => {
            Err(SpecError(format!("{text} is too large for any dtype; for infinity, write inf")))
        }
        Ok(number) => Ok(number),
        Err(problem) => Err(SpecError(problem.to_string())),
    }
}

fn fits(number: Number, dtype: Dtype) -> Result<(), SpecError> {
    number.write(dtype, &mut Vec::with_capacity(8)).map_err(|problem| SpecError(problem.to_string()))
}

/// A whole number within bounds.
pub fn whole(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| match (range.start(), range.end()) {
            (least, &u32::MAX) => format!("expected a whole number, at least {least}"),
            (least, most) => format!("expected a whole number from {least} to {most}"),
        })
    }
}

/// A duration with its unit, above zero.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err("the duration must be longer than zero".to_owned()),
        Ok(duration) => Ok(duration),
        Err(humantime::DurationError::NumberOverflow) => Err("the duration is too long".to_owned()),
        Err(_) => Err("expected a number with a unit, such as 30s, 10m or 2h".to_owned()),
    }
}

/// A duration that a job has in milliseconds, from one millisecond on.
fn of_job(text: &str) -> Result<std::time::Duration, String> {
    let time = duration(text)?;
    if time.as_millis() == 0 { Err("at least 1ms".to_owned()) } else { Ok(time) }
}

/// For how long a job may wait.
pub fn queue_limit(text: &str) -> Result<std::time::Duration, String> {
    of_job(text)
}

/// For how long outputs are kept.
pub fn keep(text: &str) -> Result<std::time::Duration, String> {
    let time = of_job(text)?;
    if time.as_millis() > u128::from(KEEP_MS_MAX) { Err("at most 366days".to_owned()) } else { Ok(time) }
}

/// The duration of a job's time limit.
pub fn time_limit(text: &str) -> Result<std::time::Duration, String> {
    let limit = of_job(text)?;
    if limit.as_millis() > u128::from(TIME_LIMIT_MS_MAX) {
        return Err("the longest possible time limit is 7days".to_owned());
    }
    Ok(limit)
}

/// The name of a job.
pub fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("the name is empty; leave the option out for a job without a name".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests;
