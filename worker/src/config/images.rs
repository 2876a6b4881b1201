//! The container images that host programs run in, as given with `--image`, and the podman that runs them.

use std::str::FromStr;

use super::{Isolation, pool::PoolSpec};

/// The name of an image as podman knows it, such as `docker.io/pytorch/pytorch:2.9` or `localhost/torch`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName(pub String);

/// A text that is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of an image; give it as `podman images` shows it, as in localhost/torch:2.9")]
pub struct ImageNameError(String);

/// A program and its first arguments, separated by spaces: `podman --root /data/containers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandWords(pub Vec<String>);

/// Why the images are invalid.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    #[error("image {0} is given twice")]
    Twice(String),
    #[error(
        "pool {0} runs host programs in containers (program-isolation=podman), but the worker has no image for them; add --image IMAGE"
    )]
    None(String),
}

impl FromStr for ImageName {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && text.chars().all(is_name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ImageNameError(text.to_owned()))
        }
    }
}

impl FromStr for CommandWords {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() { Err("expected a command, as in podman") } else { Ok(Self(words)) }
    }
}

/// Returns the names of the images, after checking that pools with containers have one.
pub(super) fn check(given: Vec<ImageName>, pools: &[PoolSpec]) -> Result<Vec<String>, ImagesError> {
    let mut names: Vec<String> = given.into_iter().map(|ImageName(name)| name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ImagesError::Twice(twice[0].clone()));
    }
    let needs_one = |pool: &&PoolSpec| pool.programs.count > 0 && pool.programs.isolation == Isolation::Podman;
    match pools.iter().find(needs_one) {
        Some(pool) if names.is_empty() => Err(ImagesError::None(pool.name.to_string())),
        _ => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_names_and_pools_with_containers_have_one() {
        let pools = |text: &str| vec![text.parse::<PoolSpec>().unwrap()];
        let problem = |given: &[&str], pool: &str| {
            let given = given.iter().map(|text| text.parse().unwrap()).collect();
            check(given, &pools(pool)).map_err(|error| error.to_string())
        };
        let podman = "p:programs=1,program-isolation=podman";
        assert_eq!(problem(&["localhost/b:1", "a"], podman).unwrap(), ["a", "localhost/b:1"]);
        assert!(problem(&[], podman).unwrap_err().contains("--image IMAGE"));
        assert!(problem(&[], "p:programs=1").is_ok() && problem(&[], "p:program-isolation=podman").is_ok());
        assert!(problem(&["a", "a"], "p").unwrap_err().contains("twice"));
        for text in ["", "-a", "a b", "--rm", "a,b"] {
            assert!(text.parse::<ImageName>().unwrap_err().to_string().contains("podman images"), "{text}");
        }
        assert_eq!("podman  --root /x".parse::<CommandWords>().unwrap().0, ["podman", "--root", "/x"]);
        assert!(" ".parse::<CommandWords>().is_err());
    }
}
