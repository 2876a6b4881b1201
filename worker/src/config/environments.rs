//! The environments that host programs run in, as given with `--environment`: `torch=/opt/torch`.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use super::{Isolation, pool::PoolSpec};

/// An environment: a folder with the programs and libraries of a virtual environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSpec {
    pub name: String,
    pub folder: PathBuf,
}

/// A text that is not an environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentSpecError {
    #[error("{0:?}: expected NAME=FOLDER, as in torch=/opt/torch")]
    Form(String),
    #[error("{0:?} is not the name of an environment; use letters, digits, '-', '_' and '.'")]
    Name(String),
    #[error("{0:?}: give the folder's absolute path")]
    Relative(PathBuf),
}

/// Why the environments are invalid.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentsError {
    #[error("environment {0} is given twice")]
    Twice(String),
    #[error("environment {name}: {} is not a folder that this user can read", .folder.display())]
    NoFolder { name: String, folder: PathBuf },
    #[error("pool {0} runs host programs, but the worker has no environment for them; add --environment NAME=FOLDER")]
    None(String),
}

impl FromStr for EnvironmentSpec {
    type Err = EnvironmentSpecError;

    fn from_str(text: &str) -> Result<Self, EnvironmentSpecError> {
        let (name, folder) = text.split_once('=').ok_or_else(|| EnvironmentSpecError::Form(text.to_owned()))?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(EnvironmentSpecError::Name(name.to_owned()));
        }
        let folder = PathBuf::from(folder);
        if !folder.is_absolute() {
            return Err(EnvironmentSpecError::Relative(folder));
        }
        Ok(Self { name: name.to_owned(), folder })
    }
}

/// Returns the folders of the environments by name, after checking that they exist and that pools with host programs have one.
pub(super) fn check(
    given: Vec<EnvironmentSpec>,
    pools: &[PoolSpec],
) -> Result<BTreeMap<String, PathBuf>, EnvironmentsError> {
    let mut environments = BTreeMap::new();
    for EnvironmentSpec { name, folder } in given {
        if std::fs::read_dir(&folder).is_err() {
            return Err(EnvironmentsError::NoFolder { name, folder });
        }
        if environments.insert(name.clone(), folder).is_some() {
            return Err(EnvironmentsError::Twice(name));
        }
    }
    let needs_one = |pool: &&PoolSpec| pool.programs.count > 0 && pool.programs.isolation == Isolation::Environment;
    match pools.iter().find(needs_one) {
        Some(pool) if environments.is_empty() => Err(EnvironmentsError::None(pool.name.to_string())),
        _ => Ok(environments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<EnvironmentSpec, EnvironmentSpecError> {
        text.parse()
    }

    #[test]
    fn an_environment_is_a_name_and_an_absolute_folder() {
        let torch = spec("torch-2.9=/opt/torch").unwrap();
        assert_eq!((torch.name.as_str(), torch.folder), ("torch-2.9", PathBuf::from("/opt/torch")));
        for (text, part) in [("torch", "NAME=FOLDER"), ("a b=/x", "letters"), ("=/x", "letters"), ("a=x", "absolute")] {
            assert!(spec(text).unwrap_err().to_string().contains(part), "{text}");
        }
    }

    #[test]
    fn folders_exist_and_pools_with_programs_have_one() {
        let pools = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<PoolSpec>>();
        let problem = |given: &[&str], of: &[&str]| {
            let given = given.iter().map(|text| spec(text).unwrap()).collect();
            check(given, &pools(of)).map_err(|error| error.to_string())
        };
        assert_eq!(problem(&["a=/tmp"], &["p:programs=1"]).unwrap().len(), 1);
        assert!(problem(&[], &["p", "q:programs=1,program-isolation=podman"]).unwrap().is_empty());
        assert!(problem(&[], &["p:programs=1"]).unwrap_err().contains("--environment NAME=FOLDER"));
        assert!(problem(&["a=/tmp", "a=/tmp"], &["p"]).unwrap_err().contains("twice"));
        assert!(problem(&["a=/no/such/folder"], &["p"]).unwrap_err().contains("not a folder"));
    }
}
