//! Reads and writes arrays in files: `.npy`, `.png`, and raw bytes whose dtype and shape are given.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
};

use gpufleet::{
    Array, ArrayError, ArrayFile,
    schema::{
        Dtype, TooLarge,
        bounds::{BLOB_BYTES_MIN, BLOBS_BYTES_MAX, MESSAGE_BYTES_MAX, PROGRAM_BYTES_MAX},
    },
};

use super::{complaint::Complaint, quantity, spec::Form};

mod in_place;
mod npy;
mod partial;
mod png;

pub use in_place::in_place;
pub use partial::PartialFile;

const MISNAMED: &str = "the extension decides how a file is read: .npy, .png, or else raw bytes with a dtype and a shape, as in x=x.bin:f32[1024]";

/// The purpose of reading a file. A file that is too large for it is not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An array that its task's message carries.
    Input,
    /// An array for the blob store that its file does not hold as the store does.
    Converted,
    Program,
    TaskFile,
    Key,
}

impl Purpose {
    pub const fn input(has_store: bool) -> Self {
        if has_store { Self::Converted } else { Self::Input }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Input => "an input without a blob store",
            Self::Converted => "a file that is converted in memory",
            Self::Program => "a program",
            Self::TaskFile => "a task file",
            Self::Key => "a key",
        }
    }

    const fn bytes_max(self) -> usize {
        match self {
            // The allowance is for the headers of the file formats.
            Self::Input | Self::Converted => self.array_bytes_max() + (64 << 10),
            Self::Program => PROGRAM_BYTES_MAX,
            // Inline data in a task file is text: base64 or numbers. Four times a message is ample.
            Self::TaskFile => 4 * MESSAGE_BYTES_MAX,
            // A PEM file of one key is a few hundred bytes.
            Self::Key => 64 << 10,
        }
    }

    /// The bound in the error message.
    const fn told_max(self) -> u64 {
        match self {
            Self::Input | Self::Converted => self.array_bytes_max() as u64,
            other => other.bytes_max() as u64,
        }
    }

    /// The most bytes of an array in a file.
    const fn array_bytes_max(self) -> usize {
        match self {
            Self::Converted => BLOBS_BYTES_MAX as usize,
            _ => MESSAGE_BYTES_MAX,
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::Input => TooLarge::ADVICE,
            Self::Converted => {
                "save it as a .npy file in C order, which is stored as it is: numpy.save(file, numpy.ascontiguousarray(array))"
            }
            Self::Program => "split the program into several, or compute its tables on the device",
            Self::TaskFile => "move its arrays to files of their own: data = { file = \"x.npy\" }",
            Self::Key => "create a key with `gpufleet keygen FILE`",
        }
    }
}

/// A file's kind, by the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Npy,
    Png,
    Raw,
}

impl Kind {
    fn of(path: &Path) -> Self {
        match path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("npy") => Self::Npy,
            Some("png") => Self::Png,
            _ => Self::Raw,
        }
    }

    /// The first bytes of every file of this kind.
    const fn signature(self) -> &'static [u8] {
        match self {
            Self::Npy => b"\x93NUMPY",
            Self::Png => b"\x89PNG\r\n\x1a\n",
            Self::Raw => b"",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Npy => "NumPy",
            Self::Png => "PNG",
            Self::Raw => "raw",
        }
    }
}

/// The extensions of formats that are neither read nor written. Raw bytes under such a name would mislead every other program.
const FOREIGN: [&str; 25] = [
    "arrow", "bmp", "csv", "feather", "gif", "h5", "hdf5", "jpeg", "jpg", "json", "jsonl", "mat", "npz", "parquet",
    "pdf", "pickle", "pkl", "pt", "svg", "tif", "tiff", "tsv", "txt", "webp", "xlsx",
];

/// Rejects a file whose extension names another format.
fn check_format(path: &Path) -> Result<(), Complaint> {
    let extension = path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase).unwrap_or_default();
    if !FOREIGN.contains(&extension.as_str()) {
        return Ok(());
    }
    let (npy, bin) = (path.with_extension("npy"), path.with_extension("bin"));
    Err(Complaint::usage(format!(
        "{} is no array file: .{extension} files are neither read nor written",
        path.display()
    ))
    .hint(format!(
        "use {}, and convert it with NumPy; for raw bytes use an extension such as .bin: {}",
        npy.display(),
        bin.display()
    )))
}

/// An array for a job.
#[derive(Debug)]
pub enum Input {
    Array(Array),
    /// A large one that the blob store takes from its file.
    File(ArrayFile),
}

/// Finds an array for a job: where it is, if a store can take it from there, or else in memory.
pub fn input(path: &Path, form: Option<&Form>, purpose: Purpose) -> Result<Input, Complaint> {
    if purpose == Purpose::Converted
        && let Some(file) = in_place(path, form)?
        && file.bytes() >= BLOB_BYTES_MIN
    {
        return Ok(Input::File(file));
    }
    read(path, form, purpose).map(Input::Array)
}

/// Reads an array. `form` is the dtype and shape of raw bytes; for the other kinds it must agree with the file.
pub fn read(path: &Path, form: Option<&Form>, purpose: Purpose) -> Result<Array, Complaint> {
    check_format(path)?;
    let bytes = read_bytes(path, purpose)?;
    let unusable = |problem: String| unusable(path, &problem);
    let array = match (Kind::of(path), form) {
        (kind, _) if !bytes.starts_with(kind.signature()) => return Err(misnamed(path, kind)),
        (Kind::Npy, _) => npy::decode(&bytes).map_err(unusable)?,
        (Kind::Png, _) => png::decode(&bytes, purpose.array_bytes_max()).map_err(unusable)?,
        (Kind::Raw, Some(form)) => {
            return Array::new(form.dtype, form.shape.clone(), bytes).map_err(|problem| misfit(path, &problem));
        }
        (Kind::Raw, None) => return Err(formless(path)),
    };
    agree(path, form, array.dtype(), array.shape()).map(|()| array)
}

/// Checks the dtype and shape that a file has against the given ones.
fn agree(path: &Path, form: Option<&Form>, dtype: Dtype, shape: &[u64]) -> Result<(), Complaint> {
    let Some(given) = form.filter(|form| form.dtype != dtype || form.shape != shape) else { return Ok(()) };
    let problem = format!("it holds {dtype}{shape:?}, but {}{:?} was given", given.dtype, given.shape);
    Err(unusable(path, &problem).hint("leave out the dtype and shape; the file has its own"))
}

fn unusable(path: &Path, problem: &str) -> Complaint {
    Complaint::bad_input(format!("failed to read {}: {problem}", path.display()))
}

fn misnamed(path: &Path, kind: Kind) -> Complaint {
    unusable(path, &format!("it is not a {} file", kind.name())).hint(MISNAMED)
}

fn misfit(path: &Path, problem: &ArrayError) -> Complaint {
    Complaint::bad_input(format!("{} does not match its dtype and shape: {problem}", path.display()))
        .hint("give the dtype and shape that the file was written with")
}

fn formless(path: &Path) -> Complaint {
    unusable(path, "its dtype and shape are unknown")
        .hint(format!("give both: {}:f32[1024]; only .npy and .png files have their own", path.display()))
}

/// Reads a text, such as a kernel's source.
pub fn read_text(path: &Path, purpose: Purpose) -> Result<String, Complaint> {
    String::from_utf8(read_bytes(path, purpose)?).map_err(|_| {
        Complaint::bad_input(format!("failed to read {}: it is not UTF-8 text", path.display()))
            .hint("save the file as UTF-8")
    })
}

/// Reads a cubin. The worker checks its headers.
pub fn read_cubin(path: &Path) -> Result<Vec<u8>, Complaint> {
    const ELF: &[u8] = b"\x7fELF";
    let bytes = read_bytes(path, Purpose::Program)?;
    if bytes.starts_with(ELF) {
        return Ok(bytes);
    }
    Err(Complaint::bad_input(format!("failed to read {}: it is not a cubin", path.display()))
        .hint("nvcc -cubin makes cubins; use --ptx for PTX and --source for CUDA C"))
}

fn read_bytes(path: &Path, purpose: Purpose) -> Result<Vec<u8>, Complaint> {
    let failed = |problem| unreadable(path, &problem);
    let bytes_max = purpose.bytes_max() as u64;
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    // One byte more than allowed shows that a file is too long, whatever length it reports.
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        let (name, most) = (purpose.name(), quantity::bytes(purpose.told_max()));
        let problem = format!("{} is larger than {most}, the limit for {name}", path.display());
        return Err(Complaint::bad_input(problem).hint(purpose.hint()));
    }
    Ok(bytes)
}

pub fn unreadable(path: &Path, problem: &std::io::Error) -> Complaint {
    let complaint = unusable(path, &reason(problem));
    match problem.kind() {
        std::io::ErrorKind::NotFound => complaint.hint("check the path; relative paths start at the current directory"),
        std::io::ErrorKind::IsADirectory => complaint.hint("give the path of a file in it"),
        std::io::ErrorKind::PermissionDenied => {
            complaint.hint(format!("check its permissions: ls -l {}", path.display()))
        }
        _ => complaint,
    }
}

/// The complaint about a file that could not be created.
pub fn unwritable(path: &Path, problem: &std::io::Error) -> Complaint {
    let complaint = Complaint::bad_input(format!("failed to write {}: {}", path.display(), reason(problem)));
    match problem.kind() {
        std::io::ErrorKind::AlreadyExists => complaint.hint("choose another name; the file is not overwritten"),
        std::io::ErrorKind::NotFound => complaint.hint("its folder does not exist; create it with mkdir -p"),
        std::io::ErrorKind::PermissionDenied => complaint.hint("check the permissions of its folder: ls -ld"),
        _ => complaint,
    }
}

/// The system's message without the error number.
fn reason(problem: &std::io::Error) -> String {
    let text = problem.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_owned()
}

/// A remark for the user about a conversion that the file format required.
pub type Remark = Option<String>;

/// Writes an array. The file appears whole or not at all.
pub fn write(path: &Path, array: &Array) -> Result<Remark, Complaint> {
    let unusable = |problem: String| Complaint::bad_input(format!("failed to write {}: {problem}", path.display()));
    let (bytes, remark) = match Kind::of(path) {
        Kind::Npy => (npy::encode(array).map_err(unusable)?, None),
        Kind::Png => png::encode(array).map_err(unusable)?,
        Kind::Raw => (array.bytes().to_vec(), None),
    };
    write_whole(path, &bytes).map_err(|problem| unusable(reason(&problem)))?;
    Ok(remark)
}

fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = PartialFile::create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// An array that is read in pieces.
pub trait ArraySource {
    fn dtype(&self) -> Dtype;
    fn shape(&self) -> &[u64];
    async fn read(&self) -> Result<Array, Complaint>;
    async fn write_to(&self, file: PartialFile) -> Result<PartialFile, Complaint>;
}

/// Writes an array to a file, which appears whole or not at all. Only a picture takes more than a little memory.
pub async fn save(path: &Path, source: &impl ArraySource) -> Result<Remark, Complaint> {
    if Kind::of(path) == Kind::Png {
        return write(path, &source.read().await?);
    }
    let file = begin(path, Some((source.dtype(), source.shape())))?;
    source.write_to(file).await?.finish().map_err(|problem| unwritable(path, &problem))?;
    Ok(None)
}

/// A file for elements that follow: a .npy file begins with their dtype and shape.
pub fn begin(path: &Path, form: Option<(Dtype, &[u64])>) -> Result<PartialFile, Complaint> {
    let unusable = |problem: String| Complaint::bad_input(format!("failed to write {}: {problem}", path.display()));
    let header = match (Kind::of(path), form) {
        (Kind::Raw, _) => Vec::new(),
        (Kind::Npy, Some((dtype, shape))) => npy::header(dtype, shape).map_err(unusable)?,
        (Kind::Npy, None) => {
            return Err(unusable("a .npy file needs a dtype and a shape".to_owned()).hint(format!(
                "give both, as in {}:f32[480,640]; or use the extension .bin to write the raw bytes",
                path.display()
            )));
        }
        (Kind::Png, _) => {
            return Err(
                unusable("a picture is not written from a blob".to_owned()).hint("use the extension .npy or .bin")
            );
        }
    };
    let mut file = PartialFile::create(path).map_err(|problem| unwritable(path, &problem))?;
    file.write_all(&header).map_err(|problem| unwritable(path, &problem))?;
    Ok(file)
}

/// Rejects an array file that can't be written, before the job runs.
pub fn check_writable(path: &Path) -> Result<(), Complaint> {
    check_format(path)?;
    check_folder(path)
}

/// Rejects a file of any format that can't be written.
pub fn check_folder(path: &Path) -> Result<(), Complaint> {
    let folder = folder_of(path);
    let refuse = |problem: &str| Complaint::bad_input(format!("failed to write {}: {problem}", path.display()));
    if path.is_dir() {
        return Err(refuse("it is a folder").hint("give the path of a file in it"));
    }
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        _ => Err(refuse("its folder does not exist").hint(format!("create it: mkdir -p {}", folder.display()))),
    }
}

pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Rejects a file kind that can't hold the array, before the job runs.
pub fn check_holds(path: &Path, dtype: Dtype, shape: &[u64]) -> Result<(), Complaint> {
    let refuse = |problem: &str| Complaint::bad_input(format!("failed to write {}: {problem}", path.display()));
    match Kind::of(path) {
        Kind::Npy if npy::descriptor(dtype).is_none() => {
            Err(refuse(&format!("NumPy has no dtype {dtype}")).hint("use the extension .bin to write the raw bytes"))
        }
        Kind::Png => match png::check(dtype, shape) {
            Ok(()) => Ok(()),
            Err(problem) => Err(refuse(&problem).hint("use the extension .npy for an array of any shape")),
        },
        Kind::Npy | Kind::Raw => Ok(()),
    }
}

#[cfg(test)]
mod tests;
