//! The address of a blob store. It never contains credentials, so it may appear in logs and errors.

use std::{
    convert::Infallible,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use url::Url;

/// A folder, or a bucket of an S3 server: `s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-central-1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobLocation(pub(super) Place);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Folder(PathBuf),
    Bucket(Bucket),
    /// A new, empty store in this process.
    Memory,
}

/// A bucket, and the common beginning of the keys in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) name: String,
    /// Without slashes at its ends; may be empty.
    pub(super) prefix: String,
    /// The server's URL. Without it, AWS.
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    pub(super) credentials: Option<Credentials>,
}

/// A key of a bucket, which is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
}

/// A text that is not the address of a blob store. The error does not repeat the text, because it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the blob store {problem}; give a folder, or s3://bucket/prefix?endpoint=http://host:9000&region=name")]
pub struct InvalidBlobLocation {
    problem: String,
}

const SCHEME: &str = "s3";
const ENDPOINT: &str = "endpoint";
const REGION: &str = "region";
/// The bounds of S3 for the length of a bucket's name.
const BUCKET_CHARS: std::ops::RangeInclusive<usize> = 3..=63;

impl BlobLocation {
    /// A new store in this process, for tests. Each store that opens it is another one.
    pub fn memory() -> Self {
        Self(Place::Memory)
    }

    /// Adds the key of a bucket, for programs that do not take it from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. A folder needs none.
    #[must_use]
    pub fn with_credentials(mut self, access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        if let Place::Bucket(bucket) = &mut self.0 {
            let (access_key_id, secret_access_key) = (access_key_id.into(), secret_access_key.into());
            bucket.credentials = Some(Credentials { access_key_id, secret_access_key });
        }
        self
    }

    pub fn is_folder(&self) -> bool {
        matches!(self.0, Place::Folder(_))
    }
}

impl FromStr for BlobLocation {
    type Err = InvalidBlobLocation;

    fn from_str(text: &str) -> Result<Self, InvalidBlobLocation> {
        if text.is_empty() {
            return Err(invalid("is empty"));
        }
        match text.split_once(':') {
            Some((SCHEME, _)) => Ok(Self(Place::Bucket(bucket(text)?))),
            Some(("memory", _)) => Err(invalid("can't be in memory, because no other process could read it")),
            Some((scheme, rest)) if rest.starts_with("//") && !scheme.contains('/') => {
                Err(invalid("has an unsupported scheme"))
            }
            _ => Ok(Self(Place::Folder(text.into()))),
        }
    }
}

fn bucket(text: &str) -> Result<Bucket, InvalidBlobLocation> {
    let url = Url::parse(text).map_err(|source| invalid(format!("has a malformed URL: {source}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(
            "has credentials in its URL, where other users and logs would show them; set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY instead",
        ));
    }
    if url.port().is_some() {
        return Err(invalid("has a port after the bucket; name the server in endpoint"));
    }
    if url.fragment().is_some() {
        return Err(invalid("has a fragment after '#'"));
    }
    let name = url.host_str().unwrap_or_default();
    let mut bucket = Bucket {
        name: bucket_name(name)?,
        prefix: prefix(url.path())?,
        endpoint: None,
        region: None,
        credentials: None,
    };
    for (key, value) in url.query_pairs() {
        let (setting, value) = match &*key {
            ENDPOINT => (&mut bucket.endpoint, endpoint(&value)?),
            REGION => (&mut bucket.region, region(&value)?),
            _ => return Err(invalid("has an unknown parameter; endpoint and region are known")),
        };
        if setting.replace(value).is_some() {
            return Err(invalid("names a parameter twice"));
        }
    }
    Ok(bucket)
}

fn bucket_name(name: &str) -> Result<String, InvalidBlobLocation> {
    if name.is_empty() {
        return Err(invalid("names no bucket"));
    }
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if !BUCKET_CHARS.contains(&name.len()) || !name.chars().all(is_allowed) {
        return Err(invalid("has a bucket name that S3 does not allow (3 to 63 of a-z, 0-9, '-' and '.')"));
    }
    Ok(name.to_owned())
}

fn prefix(path: &str) -> Result<String, InvalidBlobLocation> {
    let prefix = path.trim_matches('/');
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let is_segment = |segment: &str| !matches!(segment, "" | "." | "..");
    if prefix.chars().all(is_allowed) && (prefix.is_empty() || prefix.split('/').all(is_segment)) {
        return Ok(prefix.to_owned());
    }
    Err(invalid("has an unusable prefix; use letters, digits, '-', '_' and '.', separated by single slashes"))
}

fn endpoint(text: &str) -> Result<String, InvalidBlobLocation> {
    let problem = match Url::parse(text) {
        Err(source) => format!("is malformed: {source}"),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => "is neither http:// nor https://".to_owned(),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "has credentials, where other users and logs would show them".to_owned()
        }
        Ok(url) if url.path() != "/" || url.query().is_some() || url.fragment().is_some() => {
            "has more than a host and a port".to_owned()
        }
        Ok(url) => return Ok(url.as_str().trim_end_matches('/').to_owned()),
    };
    Err(invalid(format!("has an endpoint that {problem}")))
}

fn region(text: &str) -> Result<String, InvalidBlobLocation> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Ok(text.to_owned());
    }
    Err(invalid("has an unusable region; use letters, digits and '-'"))
}

fn invalid(problem: impl Into<String>) -> InvalidBlobLocation {
    InvalidBlobLocation { problem: problem.into() }
}

impl fmt::Display for BlobLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Folder(folder) => write!(f, "{}", folder.display()),
            Place::Bucket(bucket) => write!(f, "{bucket}"),
            Place::Memory => f.write_str("memory:"),
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, prefix, endpoint, region, credentials: _ } = self;
        write!(f, "{SCHEME}://{name}")?;
        if !prefix.is_empty() {
            write!(f, "/{prefix}")?;
        }
        let parameters = [(ENDPOINT, endpoint), (REGION, region)];
        let set = parameters.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        for (mark, (key, value)) in ['?', '&'].into_iter().zip(set) {
            write!(f, "{mark}{key}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

impl From<PathBuf> for BlobLocation {
    fn from(folder: PathBuf) -> Self {
        Self(Place::Folder(folder))
    }
}

impl From<&Path> for BlobLocation {
    fn from(folder: &Path) -> Self {
        Self(Place::Folder(folder.to_owned()))
    }
}

impl From<&PathBuf> for BlobLocation {
    fn from(folder: &PathBuf) -> Self {
        Self(Place::Folder(folder.clone()))
    }
}

impl TryFrom<&str> for BlobLocation {
    type Error = InvalidBlobLocation;

    fn try_from(text: &str) -> Result<Self, InvalidBlobLocation> {
        text.parse()
    }
}

impl TryFrom<String> for BlobLocation {
    type Error = InvalidBlobLocation;

    fn try_from(text: String) -> Result<Self, InvalidBlobLocation> {
        text.parse()
    }
}

/// For options and variables. Only a folder's name may have other characters than those of Unicode.
impl TryFrom<OsString> for BlobLocation {
    type Error = InvalidBlobLocation;

    fn try_from(text: OsString) -> Result<Self, InvalidBlobLocation> {
        text.into_string().map_or_else(|folder| Ok(Self(Place::Folder(folder.into()))), |text| text.parse())
    }
}

/// For callers that accept both a location and a text.
impl From<Infallible> for InvalidBlobLocation {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> BlobLocation {
        text.parse().unwrap()
    }

    #[test]
    fn a_location_is_written_as_it_is_read() {
        for text in [
            "/srv/blobs",
            "relative/blobs",
            "./s3:odd",
            "s3://bucket",
            "s3://bucket/some/prefix",
            "s3://my.bucket-1?region=eu-central-1",
            "s3://bucket/p?endpoint=http://127.0.0.1:9000&region=us-east-1",
            "s3://bucket/p?endpoint=https://[::1]:9000",
        ] {
            assert_eq!(parsed(text).to_string(), text);
            assert_eq!(parsed(&parsed(text).to_string()), parsed(text));
        }
        assert_eq!(
            parsed("s3://bucket/p/?endpoint=http%3A%2F%2Fh%3A1%2F").to_string(),
            "s3://bucket/p?endpoint=http://h:1"
        );
        assert_eq!(parsed("/srv/blobs"), BlobLocation::from(Path::new("/srv/blobs")));
    }

    #[test]
    fn credentials_do_not_show() {
        let location = parsed("s3://bucket/p").with_credentials("canary", "canary");
        assert_eq!(location.to_string(), "s3://bucket/p");
        assert!(!format!("{location:?}").contains("canary"));
    }

    #[test]
    fn an_unusable_location_is_refused_with_its_problem_and_without_its_text() {
        for (text, problem) in [
            ("", "is empty"),
            ("memory:", "in memory"),
            ("https://hunter2@host/bucket", "unsupported scheme"),
            ("s3:bucket", "names no bucket"),
            ("s3://", "names no bucket"),
            ("s3:///prefix", "names no bucket"),
            ("s3://Bucket_hunter2", "bucket name"),
            ("s3://b", "bucket name"),
            ("s3://key:hunter2@bucket/prefix", "AWS_SECRET_ACCESS_KEY"),
            ("s3://bucket:9000/prefix", "port"),
            ("s3://bucket/a//b", "prefix"),
            ("s3://bucket/a%20b", "prefix"),
            ("s3://bucket/#hunter2", "fragment"),
            ("s3://bucket?secret=hunter2", "unknown parameter"),
            ("s3://bucket?region=a&region=b", "twice"),
            ("s3://bucket?region=", "region"),
            ("s3://bucket?endpoint=127.0.0.1:9000", "endpoint"),
            ("s3://bucket?endpoint=ftp://h", "neither http:// nor https://"),
            ("s3://bucket?endpoint=http://h/path", "more than a host"),
            ("s3://bucket?endpoint=http://key:hunter2@h", "credentials"),
        ] {
            let error = text.parse::<BlobLocation>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
            assert!(!error.contains("hunter2") && error.contains("s3://bucket/prefix?"), "{text}: {error}");
        }
    }
}
