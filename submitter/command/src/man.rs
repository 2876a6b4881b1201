//! `gpufleet man`

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Command};
use clap_mangen::Man;

use super::{complaint::Complaint, exit::Exit, files, output};

/// Write the man pages, one for each command
///
/// Existing pages are replaced. To read them: man DIR/gpufleet-submit.1. To install them for your user: gpufleet man
/// ~/.local/share/man/man1
#[derive(Debug, Args)]
pub struct Options {
    /// Folder to write to; it is created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub fn run(options: &Options, mut command: Command) -> Result<Exit, Complaint> {
    let folder = &options.folder;
    command.build();
    let written = write(folder, &command).map_err(|error| files::unwritable(folder, &error))?;
    output::emit(&format!("wrote {written} man pages to {}\n", folder.display()))?;
    Ok(Exit::Success)
}

/// Writes the page of the command and those of its subcommands, and returns their number.
fn write(folder: &Path, command: &Command) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = page(&command.clone().name(name.clone()))?;
    fs::write(folder.join(format!("{name}.1")), page)?;
    let subcommands = command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help");
    subcommands.map(|subcommand| write(folder, subcommand)).try_fold(1, |written, more| Ok(written + more?))
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let notes = command.get_after_long_help().or_else(|| command.get_after_help());
    page.extend(notes.iter().flat_map(|notes| sections(&notes.to_string()).into_bytes()));
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// The examples and tables below a command's help. clap_mangen would fill their lines as if they were prose.
fn sections(notes: &str) -> String {
    let mut text = String::new();
    for block in notes.split("\n\n") {
        let (title, lines) = match block.split_once('\n') {
            Some((title, lines)) if title.ends_with(':') => (title.trim_end_matches(':').to_uppercase(), lines),
            _ => ("NOTES".to_owned(), block),
        };
        text.push_str(&format!(".SH \"{title}\"\n.nf\n"));
        for line in lines.lines() {
            // At the beginning of a line, a full stop or an apostrophe would begin a request.
            text.push_str(&format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-")));
        }
        text.push_str(".fi\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::command_line;

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("man1");
        let options = Options { folder: pages.clone() };
        assert_eq!(run(&options, command_line::Options::command()).unwrap(), Exit::Success);
        let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
        assert!(page("gpufleet.1").contains("gpufleet\\-submit(1)"), "{}", page("gpufleet.1"));
        assert!(page("gpufleet-submit.1").contains("\\-\\-detach"));
        assert!(page("gpufleet-local-up.1").contains("\\-\\-workers"));
        assert!(!pages.join("gpufleet-help.1").exists());
    }

    #[test]
    fn no_page_shows_a_value_of_the_environment() {
        // The URL has a password.
        let folder = tempfile::tempdir().unwrap();
        let mut command = command_line::Options::command();
        command.build();
        write(folder.path(), &command).unwrap();
        let page = fs::read_to_string(folder.path().join("gpufleet-submit.1")).unwrap();
        assert!(page.contains("GPUFLEET_AMQP_URL") && !page.contains("GPUFLEET_AMQP_URL="), "{page}");
    }

    #[test]
    fn lines_below_the_help_stay_as_they_are() {
        let notes = "Examples:\n  gpufleet wait -v\n.x\n\nSome prose\nof two lines";
        let expected = ".SH \"EXAMPLES\"\n.nf\n\\&  gpufleet wait \\-v\n\\&.x\n.fi\n\
                        .SH \"NOTES\"\n.nf\n\\&Some prose\n\\&of two lines\n.fi\n";
        assert_eq!(sections(notes), expected);
    }
}
