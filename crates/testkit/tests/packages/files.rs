//! The packages as files. What is in each, beside the list `packaging/files`: owners, modes, and
//! nothing that one of them has alone.

use crate::host::Packages;
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::repository_root;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Outcome, Suite, TestkitError, mounts};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A path, with a slash at its end for a directory; its user and group; its mode as `ls` has it.
#[derive(Debug)]
pub struct PackedFile {
    pub path: String,
    pub owners: String,
    pub mode: String,
}

/// A line of the list.
struct Listed {
    user: String,
    mode: String,
    /// With one `*` for a name's part at most.
    path: String,
}

pub fn cases(suite: &mut Suite) {
    suite.case("the_same_bytes_twice", same_bytes);
    suite.case("lintian_finds_no_error", lintian);
    suite.case("the_rpm_holds_the_program", rpm);
    suite.case("files_of_the_tarball", || {
        compare(
            "the tar.gz",
            &in_tarball(&Packages::ready()?.file(".tar.gz")?)?,
        )
    });
    suite.case("files_of_the_deb", || of_deb(&Packages::ready()?));
    suite.case("files_of_the_rpm", || of_rpm(&Packages::ready()?));
}

fn list() -> Result<Vec<Listed>> {
    let path = repository_root().join("packaging/files");
    let text = fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))?;
    let lines = text
        .lines()
        .filter(|of| !of.is_empty() && !of.starts_with('#'));
    let parsed = lines.map(|line| {
        let (what, reason) = line.split_once(": ").unwrap_or_default();
        let words: Vec<&str> = what.split(' ').collect();
        match words[..] {
            [user, mode, path] if !reason.is_empty() => Ok(Listed {
                user: user.to_owned(),
                mode: mode.to_owned(),
                path: path.to_owned(),
            }),
            _ => Err(TestkitError::Expectation(format!(
                "packaging/files: {line}"
            ))),
        }
    });
    parsed.collect()
}

impl Listed {
    fn means(&self, path: &str) -> bool {
        match self.path.split_once('*') {
            None => self.path == path,
            Some((first, last)) => {
                let name = path
                    .strip_prefix(first)
                    .and_then(|of| of.strip_suffix(last));
                name.is_some_and(|name| !name.contains('/'))
            }
        }
    }

    /// As `ls` shows it, with the kind.
    fn letters(&self) -> String {
        let kind = if self.path.ends_with('/') { 'd' } else { '-' };
        let digits = self.mode.bytes().map(|of| of.wrapping_sub(b'0'));
        let three = digits.flat_map(|digit| {
            let bit = |mask: u8, letter| if digit & mask == 0 { '-' } else { letter };
            [bit(4, 'r'), bit(2, 'w'), bit(1, 'x')]
        });
        std::iter::once(kind).chain(three).collect()
    }
}

/// Fails for a file that one of the two has alone, another owner, another mode.
pub fn compare(package: &str, files: &[PackedFile]) -> Result<Outcome> {
    let list = list()?;
    for file in files {
        let listed = list.iter().find(|line| line.means(&file.path));
        let (user, mode) = match listed {
            Some(line) => (&*line.user, line.letters()),
            // The system's.
            None if file.path.ends_with('/') && !file.path.contains("hayloft") => {
                ("root", "drwxr-xr-x".to_owned())
            }
            None => {
                let why = format!("{package} has {}, packaging/files has not", file.path);
                return expect(false, || why).map(|()| Outcome::Passed);
            }
        };
        let right = file.owners == format!("{user}/{user}") && file.mode == mode;
        expect(right, || format!("{package}: {file:?}: want {user} {mode}"))?;
    }
    for line in &list {
        let found = files.iter().any(|file| line.means(&file.path));
        expect(found, || {
            format!("packaging/files has {}, {package} has not", line.path)
        })?;
    }
    println!("{package}: {} entries", files.len());
    passed()
}

/// What `tar` lists of an archive whose paths begin with `first`; root by its number.
fn listed_by_tar(list: &str, first: &str) -> Vec<PackedFile> {
    let entries = list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (mode, owners) = (words.next()?, words.next()?);
        let path = words.nth(3)?.strip_prefix(first)?;
        Some(PackedFile {
            path: format!("/{path}"),
            owners: owners.replace("0/0", "root/root"),
            mode: mode.to_owned(),
        })
    });
    entries.filter(|of| of.path != "/").collect()
}

fn in_tarball(tar: &Path) -> Result<Vec<PackedFile>> {
    let mut list = Command::new("tar");
    let list = mounts::run(list.args(["--numeric-owner", "-tvzf"]).arg(tar))?;
    let name = tar.file_name().unwrap_or_default().to_string_lossy();
    let first = name.replace(".tar.gz", "/");
    Ok(listed_by_tar(&list, &first))
}

fn of_deb(packages: &Packages) -> Result<Outcome> {
    if !has("dpkg-deb") {
        return Ok(Outcome::Skipped("no dpkg-deb".into()));
    }
    let list = mounts::run(
        Command::new("dpkg-deb")
            .arg("-c")
            .arg(packages.file(".deb")?),
    )?;
    compare("the deb", &listed_by_tar(&list, "./"))
}

fn of_rpm(packages: &Packages) -> Result<Outcome> {
    if !has("rpm2cpio") || !has("cpio") {
        return Ok(Outcome::Skipped("no rpm2cpio or cpio".into()));
    }
    let list = "rpm2cpio \"$1\" | cpio --list --verbose --numeric-uid-gid --quiet";
    let mut shell = Command::new("sh");
    shell.args(["-c", list, "sh"]).arg(packages.file(".rpm")?);
    let list = mounts::run(&mut shell)?;
    let entries = list.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, _, user, group, _, _, _, _, path] = words[..] else {
            return None;
        };
        let slash = if mode.starts_with('d') { "/" } else { "" };
        Some(PackedFile {
            path: format!("/{}{slash}", path.trim_start_matches("./")),
            owners: format!("{user}/{group}").replace("0/0", "root/root"),
            mode: mode.to_owned(),
        })
    });
    compare("the rpm", &entries.collect::<Vec<_>>())
}

fn same_bytes() -> Result<Outcome> {
    let sums = |packages: &Packages| {
        let path = packages.dir.join("SHA256SUMS");
        fs::read_to_string(&path).map_err(TestkitError::file("reading", &path))
    };
    let first = sums(&Packages::make()?)?;
    expect_eq("checksums", sums(&Packages::make()?)?, first)?;
    passed()
}

fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", program])
        .output();
    found.is_ok_and(|of| of.status.success())
}

fn lintian() -> Result<Outcome> {
    if !has("lintian") {
        return Ok(Outcome::Skipped("no lintian".into()));
    }
    let deb = Packages::ready()?.file(".deb")?;
    mounts::run(
        Command::new("lintian")
            .args(["--fail-on", "error"])
            .arg(deb),
    )?;
    passed()
}

fn rpm() -> Result<Outcome> {
    if !has("rpm2cpio") || !has("cpio") {
        return Ok(Outcome::Skipped("no rpm2cpio or cpio".into()));
    }
    let rpm = Packages::ready()?.file(".rpm")?;
    let dir = hayloft_testkit::hadoop::scratch("rpm-")?;
    let unpack = "rpm2cpio \"$1\" | cpio --extract --make-directories --quiet";
    mounts::run(
        Command::new("sh")
            .args(["-c", unpack, "sh"])
            .arg(rpm)
            .current_dir(dir.path()),
    )?;
    let said = mounts::run(Command::new(dir.path().join("usr/bin/hayloft")).arg("--version"))?;
    expect(said.starts_with("hayloft "), || said.clone())?;
    passed()
}
