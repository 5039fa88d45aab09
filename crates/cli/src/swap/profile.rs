//! The shell profile: a file that makes Hadoop's shell start Hayloft as the DataNode. Where it is,
//! Hayloft starts next; where it is not, Apache's node does.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The profile as the package has it.
const TEXT: &str = include_str!("../../../../packaging/hayloft.sh");
/// The line that names the program.
const USUAL: &str = "HAYLOFT=${HAYLOFT:-/usr/bin/hayloft}";

/// Where it goes: Hadoop reads it for this configuration alone.
pub fn path(conf: &Path) -> PathBuf {
    conf.join("shellprofile.d/hayloft.sh")
}

/// The profile for the program at `program`.
fn text(program: &Path) -> String {
    let quoted = program.display().to_string().replace('\'', r"'\''");
    TEXT.replace(USUAL, &format!("HAYLOFT=${{HAYLOFT:-'{quoted}'}}"))
}

/// Whether the profile is there, and another version's.
pub fn is_old(conf: &Path, program: &Path) -> bool {
    fs::read_to_string(path(conf)).is_ok_and(|there| there != text(program))
}

/// Puts it there whole, or not at all.
///
/// # Errors
/// As writing and renaming.
pub fn install(conf: &Path, program: &Path) -> io::Result<()> {
    let path = path(conf);
    let dir = path.parent().unwrap_or(conf);
    fs::create_dir_all(dir)?;
    // Not a name that Hadoop's shell would read.
    let draft = dir.join(".hayloft.sh.draft");
    let written = write(&draft, &text(program)).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written?;
    fs::File::open(dir)?.sync_all()
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    // What a killed swap left, or a link that another user put there: it is not followed.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::File::create_new(path)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    // Whatever this user's mask is, the node's user reads it.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.sync_all()
}

/// Takes it away; the folder too, where nothing else is in it.
///
/// # Errors
/// As removing.
pub fn remove(conf: &Path) -> io::Result<()> {
    let path = path(conf);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(dir) = path.parent() {
        // It stays where others have files in it.
        let _ = fs::remove_dir(dir);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_with_its_program_and_goes_without_a_trace() {
        let conf = tempfile::tempdir().expect("a directory");
        let conf = conf.path();
        install(conf, Path::new("/opt/it's/hayloft")).expect("installed");
        let text = fs::read_to_string(path(conf)).expect("there");
        assert!(
            text.contains(r"HAYLOFT=${HAYLOFT:-'/opt/it'\''s/hayloft'}"),
            "{text}"
        );
        let usual = Path::new("/usr/bin/hayloft");
        assert!(is_old(conf, usual));
        install(conf, usual).expect("installed again");
        assert!(!is_old(conf, usual));
        remove(conf).expect("removed");
        remove(conf).expect("nothing to do");
        assert_eq!(fs::read_dir(conf).expect("there").count(), 0);
    }

    #[test]
    fn a_link_in_the_place_of_the_draft_is_not_followed() {
        let conf = tempfile::tempdir().expect("a directory");
        let (conf, other) = (conf.path(), conf.path().join("other"));
        fs::write(&other, "kept").expect("written");
        fs::create_dir(conf.join("shellprofile.d")).expect("made");
        let draft = conf.join("shellprofile.d/.hayloft.sh.draft");
        std::os::unix::fs::symlink(&other, &draft).expect("linked");
        install(conf, Path::new("/usr/bin/hayloft")).expect("installed");
        assert_eq!(fs::read_to_string(&other).expect("there"), "kept");
        assert!(!path(conf).is_symlink() && !draft.is_symlink());
    }

    #[test]
    fn what_others_put_beside_it_stays() {
        let conf = tempfile::tempdir().expect("a directory");
        let conf = conf.path();
        install(conf, Path::new("/usr/bin/hayloft")).expect("installed");
        fs::write(conf.join("shellprofile.d/other.sh"), "").expect("written");
        remove(conf).expect("removed");
        assert!(conf.join("shellprofile.d/other.sh").exists() && !path(conf).exists());
    }
}
