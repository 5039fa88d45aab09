//! `hayloft papers`: what a package holds beside the program, made from the same definition as
//! `--help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::CliError;

/// Where the papers go.
#[derive(Debug, Args)]
pub struct PapersArgs {
    /// An empty directory: `man1` and `completions` are made in it.
    into: PathBuf,
}

/// Writes a page of the manual for each command, and completions for three shells.
pub fn run(args: &PapersArgs, mut command: Command) -> Result<ExitCode, CliError> {
    let manual = args.into.join("man1");
    let completions = args.into.join("completions");
    for dir in [&manual, &completions] {
        std::fs::create_dir_all(dir).map_err(CliError::file("make a directory", dir))?;
    }
    let version = command.get_version().unwrap_or_default();
    let source = format!("{} {version}", command.get_name());
    // Before completions are made, which have the commands `help`. Those say what `--help` says.
    let mut paged = command.clone().disable_help_subcommand(true);
    paged.build();
    write_pages(&paged, &manual, &source).map_err(CliError::file("write the manual", &manual))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "hayloft", &completions)
            .map_err(CliError::file("write completions", &completions))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its own commands. All tell the program and its
/// version: by themselves, commands below have none.
fn write_pages(command: &Command, manual: &Path, source: &str) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|of| !of.is_hide_set()) {
        write_pages(below, manual, source)?;
    }
    let page = clap_mangen::Man::new(command.clone()).source(source);
    page.generate_to(manual).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn every_shown_command_has_a_page_and_hidden_ones_have_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let into = dir.path().to_owned();
        let args = PapersArgs { into: into.clone() };
        run(&args, crate::args::Cli::command()).expect("written");
        let page = |name: &str| into.join("man1").join(format!("{name}.1")).exists();
        assert!(page("hayloft") && page("hayloft-node") && page("hayloft-trash-list"));
        assert!(!page("hayloft-papers") && !page("hayloft-plugin-trial"));
        let source = format!(
            "\"hayloft {}\"",
            crate::args::Cli::command().get_version().expect("one")
        );
        for page in std::fs::read_dir(into.join("man1"))
            .expect("there")
            .flatten()
        {
            let text = std::fs::read_to_string(page.path()).expect("text");
            let title = text
                .lines()
                .find(|line| line.starts_with(".TH "))
                .expect("a title");
            assert!(title.contains(&source), "{title}: no {source}");
            assert!(
                !text.contains("help(1)") && !title.contains("-help"),
                "{title}"
            );
        }
        for name in ["hayloft.bash", "_hayloft", "hayloft.fish"] {
            assert!(into.join("completions").join(name).exists(), "{name}");
        }
    }
}
