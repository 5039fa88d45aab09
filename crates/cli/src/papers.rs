//! `hayloft papers`: what a package holds beside the program, made from the same definition as
//! `--help`.

use std::path::PathBuf;
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
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "hayloft", &completions)
            .map_err(CliError::file("write completions", &completions))?;
    }
    clap_mangen::generate_to(command, &manual)
        .map_err(CliError::file("write the manual", &manual))?;
    Ok(ExitCode::SUCCESS)
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
        for name in ["hayloft.bash", "_hayloft", "hayloft.fish"] {
            assert!(into.join("completions").join(name).exists(), "{name}");
        }
    }
}
