//! Profiles: fleets that the configuration file names. A profile gives values that neither an option nor the environment gives.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use gpufleet_kernels::spelling;
use gpufleet_transport::BrokerUrls;
use serde::Deserialize;
use url::Url;

use super::{complaint::Complaint, environment, exit::Exit, options::Secret, output};

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The profile that is used unless another one is asked for.
    default: Option<String>,
    #[serde(default)]
    profile: BTreeMap<String, Profile>,
}

/// A fleet. The keys are the names of environment variables without `GPUFLEET_`, and commands that print passwords.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    amqp_url: Option<Secret>,
    /// Prints the password for `amqp_url`.
    password_command: Option<String>,
    database_url: Option<Secret>,
    database_read_url: Option<Secret>,
    /// Prints the password for `database_url` and `database_read_url`.
    database_password_command: Option<String>,
    api_url: Option<String>,
    api_token: Option<Secret>,
    /// Prints the token for `api_url`.
    api_token_command: Option<String>,
    blobs: Option<String>,
    pool: Option<String>,
    affinity: Option<bool>,
    no_user_id: Option<bool>,
}

/// The option that chooses a profile.
const OPTION: &str = "--profile";
/// Files that others may read should not have passwords.
const OTHERS: u32 = 0o077;

static CHOSEN: OnceLock<Profile> = OnceLock::new();

/// Reads the profile that these arguments and the environment choose, for the rest of the process.
pub fn choose(arguments: &[OsString]) -> Result<&'static Profile, Complaint> {
    let named = typed(arguments).or_else(|| variable(environment::PROFILE));
    let chosen = read(file().as_deref(), named.as_deref())?;
    Ok(CHOSEN.get_or_init(|| chosen))
}

/// The URL with the password that the profile's command prints, if the URL is that of the profile and has none.
pub fn with_password(url: &str) -> Result<String, Complaint> {
    CHOSEN.get().map_or_else(|| Ok(url.to_owned()), |profile| profile.with_password(url))
}

/// The token that the profile's command prints, if this is the URL of the profile's API.
pub fn api_token(url: &str) -> Result<Option<Secret>, Complaint> {
    match CHOSEN.get() {
        Some(Profile { api_url: Some(known), api_token_command: Some(command), .. }) if known == url => {
            first_line("api_token_command", command).map(|token| Some(Secret(token)))
        }
        _ => Ok(None),
    }
}

/// The file in which profiles are.
fn file() -> Option<PathBuf> {
    let named = variable(environment::CONFIG).map(PathBuf::from);
    let below = |folder: PathBuf| folder.join("gpufleet").join("config.toml");
    named
        .or_else(|| variable("XDG_CONFIG_HOME").map(PathBuf::from).map(below))
        .or_else(|| variable("HOME").map(|home| below(Path::new(&home).join(".config"))))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The name after the option, which clap has not seen yet.
fn typed(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        match word.strip_prefix(OPTION) {
            Some("") => return words.next().map(str::to_owned),
            Some(value) if value.starts_with('=') => return Some(value[1..].to_owned()),
            _ => {}
        }
    }
    None
}

/// The named profile, or else the default one, or else none.
fn read(path: Option<&Path>, named: Option<&str>) -> Result<Profile, Complaint> {
    let Some((path, text)) = path.map(load).transpose()?.flatten() else {
        return match named {
            None => Ok(Profile::default()),
            Some(named) => Err(absent(named, path, &BTreeMap::new())),
        };
    };
    let config: Config = toml::from_str(&text).map_err(|problem| {
        Complaint::usage(format!("the configuration file {} is not valid", path.display()))
            .detail(problem.to_string())
            .hint("correct the file; the page `Profiles` of the documentation lists its keys")
    })?;
    let Some(name) = named.or(config.default.as_deref()) else { return Ok(Profile::default()) };
    let Some(profile) = config.profile.get(name) else { return Err(absent(name, Some(path), &config.profile)) };
    if profile.has_secrets() && others_may_read(path) {
        output::warn(&format!("others may read {}, which has a password: chmod 600 it", path.display()));
    }
    profile.check(name, path)?;
    Ok(profile.clone())
}

/// The file's text, if there is a file.
fn load(path: &Path) -> Result<Option<(&Path, String)>, Complaint> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some((path, text))),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => {
            Err(Complaint::usage(format!("failed to read the configuration file {}: {problem}", path.display()))
                .hint(format!("correct its permissions, or name another file in {}", environment::CONFIG)))
        }
    }
}

fn absent(name: &str, path: Option<&Path>, known: &BTreeMap<String, Profile>) -> Complaint {
    let path = path.map_or_else(|| "~/.config/gpufleet/config.toml".to_owned(), |path| path.display().to_string());
    let complaint = Complaint::usage(format!("there is no profile {name:?} in {path}"));
    if let Some(closest) = spelling::closest(name, known.keys().map(String::as_str)) {
        return complaint.hint(format!("did you mean {closest}?"));
    }
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    match names.as_slice() {
        [] => complaint.hint(format!("add one to the file: [profile.{name}], and below it amqp_url = \"amqps://…\"")),
        names => complaint.hint(format!("it has {}", names.join(", "))),
    }
}

fn others_may_read(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & OTHERS != 0)
}

/// What the command prints on its first line.
fn first_line(key: &str, command: &str) -> Result<String, Complaint> {
    let failed = |why: String| {
        Complaint::new(Exit::Usage, format!("{key} of the profile gave no password: {why}"))
            .hint(format!("run it to see why: {command}"))
    };
    // A password manager may ask for its passphrase on the terminal.
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::inherit()).stderr(Stdio::inherit());
    let printed = shell.output().map_err(|problem| failed(problem.to_string()))?;
    if !printed.status.success() {
        return Err(failed(format!("it ended with {}", printed.status)));
    }
    let text =
        String::from_utf8(printed.stdout).map_err(|_| failed("it printed bytes that are no UTF-8".to_owned()))?;
    let line = text.lines().next().filter(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| failed("it printed nothing".to_owned()))
}

impl Profile {
    /// The command's definition with this profile's values as defaults, which rank below options and the environment.
    pub fn apply(&self, command: clap::Command) -> clap::Command {
        let command = command.mut_args(|arg| {
            let value = arg.get_env().and_then(|variable| self.value(variable.to_str()?));
            match value {
                // The help shows no default of a flag, and clap refuses to be told so.
                Some(value) if !arg.get_action().takes_values() => arg.default_value(value),
                Some(value) => arg.default_value(value).hide_default_value(true),
                None => arg,
            }
        });
        command.mut_subcommands(|subcommand| self.apply(subcommand))
    }

    /// The value in place of this environment variable.
    fn value(&self, variable: &str) -> Option<String> {
        let secret = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.0.clone());
        let flag = |flag: Option<bool>| flag.filter(|is_set| *is_set).map(|_| "true".to_owned());
        match variable {
            environment::AMQP_URL => secret(&self.amqp_url),
            environment::DATABASE_URL => secret(&self.database_url),
            environment::DATABASE_READ_URL => secret(&self.database_read_url),
            environment::API_URL => self.api_url.clone(),
            environment::API_TOKEN => secret(&self.api_token),
            environment::BLOBS => self.blobs.clone(),
            environment::POOL => self.pool.clone(),
            environment::AFFINITY => flag(self.affinity),
            environment::NO_USER_ID => flag(self.no_user_id),
            _ => None,
        }
    }

    fn with_password(&self, url: &str) -> Result<String, Complaint> {
        let is = |known: &Option<Secret>| known.as_ref().is_some_and(|known| known.0 == url);
        let (key, command) = if is(&self.amqp_url) {
            ("password_command", &self.password_command)
        } else if is(&self.database_url) || is(&self.database_read_url) {
            ("database_password_command", &self.database_password_command)
        } else {
            return Ok(url.to_owned());
        };
        let Some(command) = command else { return Ok(url.to_owned()) };
        let mut parsed: Vec<Url> = BrokerUrls::split(url)
            .into_iter()
            .map(|url| Url::parse(url).expect("it was checked when the file was read"))
            .collect();
        let mut lacking = parsed.iter_mut().filter(|url| url.password().is_none()).peekable();
        if lacking.peek().is_none() {
            return Ok(url.to_owned());
        }
        let password = first_line(key, command)?;
        for url in lacking {
            url.set_password(Some(&password)).expect("it was checked that the URL has a user");
        }
        Ok(parsed.iter().map(Url::as_str).collect::<Vec<_>>().join(","))
    }

    fn has_secrets(&self) -> bool {
        let has_password = |url: &str| Url::parse(url).is_ok_and(|url| url.password().is_some());
        let has_password = |urls: &Option<Secret>| {
            urls.as_ref().is_some_and(|urls| BrokerUrls::split(&urls.0).into_iter().any(has_password))
        };
        self.api_token.is_some()
            || [&self.amqp_url, &self.database_url, &self.database_read_url].into_iter().any(has_password)
    }

    /// A URL whose password a command prints needs a user, to whom the password belongs.
    fn check(&self, name: &str, path: &Path) -> Result<(), Complaint> {
        let urls = [
            ("amqp_url", &self.amqp_url, self.password_command.is_some()),
            ("database_url", &self.database_url, self.database_password_command.is_some()),
            ("database_read_url", &self.database_read_url, self.database_password_command.is_some()),
        ];
        for (key, url, needs_user) in urls {
            let Some(Secret(url)) = url.as_ref().filter(|_| needs_user) else { continue };
            let names_user = |url: &str| Url::parse(url).is_ok_and(|url| url.has_host() && !url.username().is_empty());
            if !BrokerUrls::split(url).into_iter().all(names_user) {
                return Err(Complaint::usage(format!("{key} of profile {name} in {} names no user", path.display()))
                    .hint("write the user into the URL, such as amqps://ana@broker.example/fleet; the password comes from the command"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
