//! `gpufleet init`: writes a starter project, a kernel with the programs that run it, or the sample files of the documentation.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{complaint::Complaint, exit::Exit, files, output};

mod samples;
mod scene;

/// Write a starter project, or the sample files of the documentation
///
/// A project has a CUDA C kernel, a shell script, a Python script and a README. The last part of DIR is also the name of the kernel. With
/// --demo, the command writes the sample files that the documentation uses: two arrays, a picture, and a kernel that finds its edges.
/// Existing files are never overwritten.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Folder to write to; it is created if it does not exist. Its name becomes the name of the kernel
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Write the sample files of the documentation instead
    #[arg(long)]
    demo: bool,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet init blend                # then: sh blend/run.sh
  gpufleet init kernels/blend
  gpufleet init --demo samples       # x.npy, y.npy, photo.png and edge.cu";

/// Stands for the kernel's name in the files of a project.
const PLACEHOLDER: &str = "KERNEL";
/// The extension of CUDA C. The file has the name of the kernel.
const SOURCE: &str = include_str!("init/project/kernel.cu");
const FILES: [(&str, &str, u32); 3] = [
    ("run.sh", include_str!("init/project/run.sh"), 0o755),
    ("run.py", include_str!("init/project/run.py"), 0o644),
    ("README.md", include_str!("init/project/README.md"), 0o644),
];
/// The words of C++ that are as short as a kernel's name may be, and could be taken for one.
const RESERVED: [&str; 24] = [
    "auto", "bool", "break", "case", "char", "class", "const", "default", "double", "else", "enum", "float", "for",
    "if", "int", "long", "new", "return", "short", "static", "struct", "this", "void", "while",
];

pub fn run(options: &Options) -> Result<Exit, Complaint> {
    let folder = &options.folder;
    if options.demo {
        return write_samples(folder);
    }
    let kernel = kernel_name(folder)?;
    let files = project(kernel);
    refuse_existing(folder, files.iter().map(|file| file.name.as_str()))?;
    fs::create_dir_all(folder).map_err(|error| files::unwritable(folder, &error))?;
    for file in &files {
        let path = folder.join(&file.name);
        file.write(&path).map_err(|error| files::unwritable(&path, &error))?;
    }
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    output::emit(&format!("wrote {} to {}\n", names.join(", "), folder.display()))?;
    output::note(&format!("to run it: sh {}", folder.join("run.sh").display()));
    Ok(Exit::Success)
}

fn write_samples(folder: &Path) -> Result<Exit, Complaint> {
    let arrays = samples::arrays();
    let (edge, source) = samples::EDGE;
    let names: Vec<&str> = arrays.iter().map(|(name, _)| *name).chain([edge]).collect();
    refuse_existing(folder, names.iter().copied())?;
    fs::create_dir_all(folder).map_err(|error| files::unwritable(folder, &error))?;
    for (name, array) in &arrays {
        files::write(&folder.join(name), array)?;
    }
    let path = folder.join(edge);
    fs::write(&path, source).map_err(|error| files::unwritable(&path, &error))?;
    output::emit(&format!("wrote {} to {}\n", names.join(", "), folder.display()))?;
    Ok(Exit::Success)
}

/// A file of a project.
struct File {
    name: String,
    text: String,
    mode: u32,
}

impl File {
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(self.mode).open(path)?;
        file.write_all(self.text.as_bytes())
    }
}

fn project(kernel: &str) -> Vec<File> {
    let source = (format!("{kernel}.cu"), SOURCE, 0o644);
    let others = FILES.map(|(name, text, mode)| (name.to_owned(), text, mode));
    let all = [source].into_iter().chain(others);
    all.map(|(name, text, mode)| File { name, text: text.replace(PLACEHOLDER, kernel), mode }).collect()
}

/// The name of the folder, if CUDA C, Python and a shell all take it as a name.
fn kernel_name(folder: &Path) -> Result<&str, Complaint> {
    let name = folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !RESERVED.contains(&name);
    if is_name {
        return Ok(name);
    }
    Err(Complaint::usage(format!("the folder's name {name:?} can't be the name of a kernel"))
        .hint("use letters, digits and '_', with a letter first, as in: gpufleet init my_kernel"))
}

/// Checks all files before the first is written.
fn refuse_existing<'a>(folder: &Path, mut names: impl Iterator<Item = &'a str>) -> Result<(), Complaint> {
    let existing = names.find(|name| folder.join(name).symlink_metadata().is_ok());
    match existing.map(|name| folder.join(name)) {
        None => Ok(()),
        Some(path) => Err(Complaint::bad_input(format!("{} exists already; nothing was written", path.display()))
            .hint("choose another folder, or remove the file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(folder: &Path) -> Result<Exit, Complaint> {
        run(&Options { folder: folder.to_owned(), demo: false })
    }

    #[test]
    fn the_samples_are_arrays_of_the_documented_shapes_and_are_not_overwritten() {
        let scratch = tempfile::tempdir().unwrap();
        let options = Options { folder: scratch.path().join("my-samples"), demo: true };
        assert_eq!(run(&options).unwrap(), Exit::Success);
        let shape =
            |name: &str| files::read(&options.folder.join(name), None, files::Purpose::Input).unwrap().shape().to_vec();
        assert_eq!((shape("x.npy"), shape("y.npy")), (vec![1_000_000], vec![1_000_000]));
        assert_eq!(shape("photo.png"), [480, 640, 3]);
        assert!(fs::read_to_string(options.folder.join("edge.cu")).unwrap().contains("__global__"));
        assert!(run(&options).unwrap_err().message.contains("exists already; nothing was written"));
    }

    #[test]
    fn a_project_has_the_kernels_name_everywhere_and_no_placeholder() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("deep/blend");
        assert_eq!(init(&folder).unwrap(), Exit::Success);
        for name in ["blend.cu", "run.sh", "run.py", "README.md"] {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            assert!(text.contains("blend") && !text.contains(PLACEHOLDER), "{name}: {text}");
        }
    }

    #[test]
    fn an_existing_file_stays_and_nothing_else_is_written() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("blend");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("run.py"), "mine").unwrap();
        let complaint = init(&folder).unwrap_err();
        assert_eq!(complaint.exit, Exit::BadInput);
        assert!(complaint.message.contains("run.py exists already"), "{}", complaint.message);
        assert_eq!(fs::read_to_string(folder.join("run.py")).unwrap(), "mine");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_name_that_no_kernel_can_have_is_refused() {
        for name in ["8x", "a-b", "", "..", "float", "ünder", "_x"] {
            assert_eq!(init(Path::new(name)).unwrap_err().exit, Exit::Usage, "{name:?}");
        }
    }
}
