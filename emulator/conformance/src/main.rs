//! `ptx-cases`: runs the cases on a CUDA driver and prints how far off its results are.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail};
use clap::Parser;
use gpufleet_conformance::{
    assembler,
    case::Case,
    checksums,
    children::{self, Outcome},
    driver::Driver,
    files, grammar,
    random::{Pool, Program},
    report::{self, Count},
    verdict::{self, CaseVerdict},
};

/// File name of the emulator's library, which Cargo puts beside this program.
const EMULATOR: &str = "libgpufleet_emulator.so";

#[derive(Debug, Parser)]
#[command(about = "Runs PTX cases on a CUDA driver and prints how far off its results are", max_term_width = 100)]
struct Options {
    /// Case files, or folders of them [default: all that the grammar makes, and the checkout's regressions]
    paths: Vec<PathBuf>,
    /// `emulated`, `system`, or the path of a libcuda
    #[arg(long, default_value = "emulated")]
    cuda: String,
    /// Also write the table of differences to this file, in Markdown
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Print, for each mnemonic, how many of its forms are proven, refused, or neither
    #[arg(long)]
    summary: bool,
    /// With `--summary`: list the refused forms
    #[arg(long)]
    refused: bool,
    /// Write all cases to files below a folder, and run nothing
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,
    /// Rewrite `checksums.txt`, which accepts a change of the grammar, and run nothing
    #[arg(long)]
    checksums: bool,
    /// Run random programs for this many seconds; a failing one is shrunk and kept among the regressions
    #[arg(long, value_name = "SECONDS")]
    random: Option<u64>,
    /// The seed of the first random program [default: the time]
    #[arg(long, requires = "random")]
    seed: Option<u64>,
    /// Assemble the cases with this ptxas, and run nothing
    #[arg(long, value_name = "PATH")]
    ptxas: Option<PathBuf>,
    /// Run the cases whose paths come on standard input
    #[arg(long, hide = true)]
    child: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the chosen action; returns whether everything passed.
fn run(options: &Options) -> anyhow::Result<bool> {
    if options.checksums {
        return write_checksums();
    }
    if let Some(folder) = &options.write {
        println!("{} cases written to {}", files::write_all(folder)?.len(), folder.display());
        return Ok(true);
    }
    let scratch = tempfile::tempdir().context("failed to make a scratch folder")?;
    if let Some(ptxas) = &options.ptxas {
        return assemble(ptxas, &paths(options, scratch.path())?);
    }
    let library = library(&options.cuda)?;
    let driver = Driver::open(library.as_deref())?;
    if options.child {
        children::serve(&driver)?;
        return Ok(true);
    }
    if let Some(seconds) = options.random {
        return random_programs(&driver, Duration::from_secs(seconds), options.seed);
    }
    let verdicts = verdicts(options, paths(options, scratch.path())?, &driver)?;
    if verdicts.is_empty() {
        bail!("every case is for a newer device than {}", driver.name());
    }
    let table = report::differences(driver.name(), &verdicts);
    if let Some(path) = &options.table {
        fs::write(path, &table).with_context(|| format!("failed to write {}", path.display()))?;
    }
    if options.summary {
        print!("{}", report::summary(&counts(options, &driver, &verdicts)));
    } else {
        print!("{table}\n{}", report::failures(&verdicts));
    }
    let failed = verdicts.iter().filter(|case| !case.passed()).count();
    println!("{} cases on {}: {} passed, {failed} failed", verdicts.len(), driver.name(), verdicts.len() - failed);
    Ok(failed == 0)
}

fn write_checksums() -> anyhow::Result<bool> {
    let path = checksums::path();
    fs::write(&path, checksums::render(&grammar::cases()))
        .with_context(|| format!("failed to write {}", path.display()))?;
    println!("{} written", path.display());
    Ok(true)
}

/// Returns the files that the command line names; if it names none, every case, written to `scratch`.
fn paths(options: &Options, scratch: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if options.paths.is_empty() {
        return files::write_all(scratch);
    }
    let mut files = Vec::new();
    for path in &options.paths {
        let found = files::list(path)?;
        if found.is_empty() {
            bail!("no case files in {}", path.display());
        }
        files.extend(found);
    }
    Ok(files)
}

fn assemble(ptxas: &Path, paths: &[PathBuf]) -> anyhow::Result<bool> {
    let version = assembler::version(ptxas)?;
    let refused = assembler::assemble(ptxas, paths)?;
    for (path, message) in &refused {
        println!("{}: {message}", path.display());
    }
    println!("{} cases assembled by {version}: {} refused", paths.len(), refused.len());
    Ok(refused.is_empty())
}

fn library(cuda: &str) -> anyhow::Result<Option<PathBuf>> {
    match cuda {
        "system" => Ok(None),
        "emulated" => {
            let me = std::env::current_exe().context("failed to find this program")?;
            let folder = me.parent().context("this program lies in no folder")?;
            let path = folder.join(EMULATOR);
            if !path.is_file() {
                bail!("{} is not there: build gpufleet-emulator, or say --cuda PATH", path.display());
            }
            Ok(Some(path))
        }
        path => Ok(Some(Path::new(path).canonicalize().with_context(|| format!("failed to find {path}"))?)),
    }
}

/// Runs random programs, one seed after the other, until the time is over or one fails.
fn random_programs(driver: &Driver, time: Duration, seed: Option<u64>) -> anyhow::Result<bool> {
    let start = Instant::now();
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let first = seed.unwrap_or(clock << 20);
    let pool = Pool::new();
    let judged = |case: &Case| match driver.run(case) {
        Ok(words) => verdict::judge(case, &Outcome::Ran(words)),
        Err(error) => verdict::judge(case, &Outcome::Failed(error)),
    };
    let mut seed = first;
    while start.elapsed() < time {
        let program = Program::new(seed, &pool);
        let found = judged(&program.case());
        if !found.passed() {
            let small = program.shrunk(|case| !judged(case).passed()).case();
            let path = files::write(&small, files::checkout())?;
            print!("{}", report::failures(&[found]));
            println!("seed {seed} failed on {}; the program is kept in {}", driver.name(), path.display());
            return Ok(false);
        }
        seed += 1;
    }
    println!("{} random programs from seed {first} on {}: all passed", seed - first, driver.name());
    Ok(true)
}

/// Runs all cases that the device is new enough for.
fn verdicts(options: &Options, paths: Vec<PathBuf>, driver: &Driver) -> anyhow::Result<Vec<CaseVerdict>> {
    let (mut runnable, mut cases) = (Vec::new(), Vec::new());
    for path in paths {
        let case = files::read(&path)?;
        if case.target().is_some_and(|target| target <= driver.capability()) {
            runnable.push(path);
            cases.push(case);
        }
    }
    let arguments = ["--child".to_owned(), "--cuda".to_owned(), options.cuda.clone()];
    let mut verdicts = Vec::new();
    children::run(&arguments, &runnable, |index, outcome| verdicts.push(verdict::judge(&cases[index], &outcome)))?;
    Ok(verdicts)
}

/// Counts proven, refused and other forms. If a case is refused, its forms are loaded one by one.
fn counts(options: &Options, driver: &Driver, verdicts: &[CaseVerdict]) -> BTreeMap<String, Count> {
    let by_name: HashMap<&str, &CaseVerdict> = verdicts.iter().map(|case| (case.name.as_str(), case)).collect();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut counted = HashSet::new();
    for recipe in grammar::recipes() {
        let main = by_name.get(recipe.name.as_str());
        for form in &recipe.forms {
            // A form may have several cases; an unproven one is among the failures.
            let new =
                std::iter::once(&form.text).chain(&form.also).filter(|text| counted.insert((*text).clone())).count();
            if new == 0 {
                continue;
            }
            let count = counts.entry(form.mnemonic().to_owned()).or_default();
            let case = if form.is_hint { by_name.get(recipe.hints_name(form.needs.sm).as_str()) } else { main };
            let verdict = case.and_then(|case| case.forms.iter().find(|verdict| verdict.form == form.text));
            match verdict {
                Some(verdict) if verdict.mismatches == 0 => count.proven += new,
                Some(_) => count.failed += new,
                None if form.needs.sm > driver.capability() => count.skipped += new,
                None => match driver.loads(&recipe.case(|other| other.text == form.text).ptx) {
                    Ok(()) => count.unproven += new,
                    Err(error) => {
                        count.refused += new;
                        if options.refused {
                            println!("refused: {} ({error})", form.text);
                        }
                    }
                },
            }
        }
    }
    counts
}
