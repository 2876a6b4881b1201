use std::os::unix::fs::PermissionsExt as _;

use clap::FromArgMatches as _;

use super::*;
use crate::command_line::{Command as Subcommand, Options};

const FILE: &str = r#"
default = "lab"

[profile.lab]
amqp_url = "amqps://ana@broker.example/fleet"
password_command = "echo 's3cret/#'"
pool = "team-a"
affinity = true

[profile.home]
amqp_url = "amqp://localhost"
"#;

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    (folder, path)
}

fn profile(text: &str, named: Option<&str>) -> Result<Profile, Complaint> {
    let (_folder, path) = written(text);
    read(Some(&path), named)
}

fn submit(profile: &Profile, words: &[&str]) -> Box<crate::submit::Options> {
    let words = [&["gpufleet", "submit", "saxpy"], words].concat();
    let matches = profile.apply(crate::command()).try_get_matches_from(words).unwrap();
    match Options::from_arg_matches(&matches).unwrap().command {
        Subcommand::Submit(options) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_profile_gives_what_the_options_leave_open() {
    let lab = profile(FILE, None).unwrap();
    let given = submit(&lab, &["--pool", "team-b"]);
    assert_eq!(given.job.pool.as_ref().map(ToString::to_string).as_deref(), Some("team-b"));
    assert!(given.affinity);
    let pool = submit(&lab, &[]).job.pool.as_ref().map(ToString::to_string);
    assert_eq!(pool.as_deref(), Some("team-a"));
    let home = profile(FILE, Some("home")).unwrap();
    assert_eq!(submit(&home, &[]).job.pool, None);
}

#[test]
fn without_a_file_there_is_no_profile() {
    let nowhere = Path::new("/nonexistent/config.toml");
    assert_eq!(read(Some(nowhere), None), Ok(Profile::default()));
    assert_eq!(read(None, None), Ok(Profile::default()));
    let complaint = read(Some(nowhere), Some("lab")).unwrap_err();
    assert!(complaint.render(false).contains("[profile.lab]"), "{complaint:?}");
}

#[test]
fn a_command_prints_the_password_for_the_url_of_the_profile_alone() {
    let lab = profile(FILE, None).unwrap();
    let url = lab.with_password("amqps://ana@broker.example/fleet").unwrap();
    assert_eq!(url, "amqps://ana:s3cret%2F%23@broker.example/fleet");
    let other = "amqps://ana@elsewhere.example/fleet";
    assert_eq!(lab.with_password(other).unwrap(), other);
}

#[test]
fn the_password_is_for_the_urls_of_all_nodes() {
    let urls = "amqps://ana@a.example/fleet, amqps://ana:own@b.example/fleet";
    let lab = profile(&FILE.replace("amqps://ana@broker.example/fleet", urls), None).unwrap();
    let expected = "amqps://ana:s3cret%2F%23@a.example/fleet,amqps://ana:own@b.example/fleet";
    assert_eq!(lab.with_password(urls).unwrap(), expected);
    let nameless = FILE.replace("amqps://ana@broker.example/fleet", "amqps://ana@a/fleet,amqps://b/fleet");
    let complaint = profile(&nameless, None).unwrap_err();
    assert!(complaint.render(false).contains("amqp_url of profile lab"), "{complaint:?}");
}

#[test]
fn a_command_without_a_password_is_an_error_that_names_it() {
    for (command, told) in [("true", "it printed nothing"), ("exit 3", "exit status: 3")] {
        let complaint = first_line("password_command", command).unwrap_err();
        assert!(complaint.message.contains(told), "{complaint:?}");
        assert!(complaint.hint.unwrap().contains(command));
    }
}

#[test]
fn a_wrong_file_is_told_with_its_place() {
    let cases = [
        ("default = \"labb\"\n[profile.lab]\n", "no profile \"labb\"", "did you mean lab?"),
        ("default = \"x\"\n[profile.lab]\n[profile.home]\n", "no profile \"x\"", "it has home, lab"),
        ("[profile.lab]\nurl = \"amqp://h\"\n", "not valid", "unknown field `url`"),
        ("[profile.lab\n", "not valid", "line 1"),
        (
            "default = \"lab\"\n[profile.lab]\namqp_url = \"amqp://h\"\npassword_command = \"pass\"\n",
            "amqp_url of profile lab",
            "write the user into the URL",
        ),
    ];
    for (text, what, next) in cases {
        let told = profile(text, None).unwrap_err().render(false);
        assert!(told.contains(what) && told.contains(next), "{text}: {told}");
    }
}

#[test]
fn the_option_is_found_before_the_end_of_options() {
    let typed = |words: &[&str]| super::typed(&words.iter().map(OsString::from).collect::<Vec<_>>());
    assert_eq!(typed(&["gpufleet", "history", "--profile", "lab"]).as_deref(), Some("lab"));
    assert_eq!(typed(&["gpufleet", "--profile=lab", "history"]).as_deref(), Some("lab"));
    assert_eq!(typed(&["gpufleet", "history", "--profiles", "lab"]), None);
    assert_eq!(typed(&["gpufleet", "--", "--profile", "lab"]), None);
}

#[test]
fn no_secret_shows_in_debug() {
    let profile = profile("[profile.lab]\namqp_url = \"amqp://u:canary@h\"\n", Some("lab")).unwrap();
    assert!(!format!("{profile:?}").contains("canary"));
}
