//! `${...}` in values, by Hadoop's rules.
//!
//! The innermost reference is replaced first, at most [`DEPTH_MAX`] times. `${env.X}`,
//! `${env.X-default}` (unset) and `${env.X:-default}` (unset or empty) read the environment;
//! otherwise Java's system properties that mean something here, then other keys. A reference that
//! nothing answers stays as it is.

/// Replacements in one value before it counts as endless.
const DEPTH_MAX: usize = 20;
/// Longest value that substitution may produce, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Expands `text`. `lookup` answers other keys, `environment` variables.
pub(super) fn substitute(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut value = text.to_owned();
    for _ in 0..DEPTH_MAX {
        let Some((start, end)) = innermost(&value) else {
            return Ok(value);
        };
        let name = &value[start + 2..end];
        let replacement = match name.strip_prefix("env.") {
            Some(variable) => variable_or_default(variable, environment),
            None => system_property(name, environment).or_else(|| lookup(name)),
        };
        let Some(replacement) = replacement else {
            return Ok(value);
        };
        value.replace_range(start..=end, &replacement);
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!(
                "'{}...' grows past {VALUE_BYTES_MAX} bytes",
                text.chars().take(60).collect::<String>()
            ));
        }
    }
    match innermost(&value) {
        None => Ok(value),
        Some(_) => Err(format!(
            "'{text}' needs more than {DEPTH_MAX} substitutions: do two keys refer to each other?"
        )),
    }
}

/// Byte offsets of `$` and `}` of the first reference that holds no other.
fn innermost(value: &str) -> Option<(usize, usize)> {
    let bytes = value.as_bytes();
    let mut start = None;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'$' => start = (bytes.get(at + 1) == Some(&b'{')).then_some(at),
            b'}' => match start {
                Some(from) if at > from + 2 => return Some((from, at)),
                _ => start = None,
            },
            b' ' => start = None,
            _ => {}
        }
    }
    None
}

fn variable_or_default(
    reference: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let Some(dash) = reference.find('-') else {
        return environment(reference);
    };
    let default = || Some(reference[dash + 1..].to_owned());
    match reference[..dash].strip_suffix(':') {
        Some(name) => environment(name).filter(|v| !v.is_empty()).or_else(default),
        None => environment(&reference[..dash]).or_else(default),
    }
}

/// The Java system properties that configurations in the field use.
fn system_property(name: &str, environment: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let directory =
        |path: std::io::Result<std::path::PathBuf>| Some(path.ok()?.to_string_lossy().into_owned());
    match name {
        "user.name" => user_of_process()
            .or_else(|| environment("USER"))
            // As in containers that run as a number; a path with an open reference is none.
            .or_else(|| Some(rustix::process::getuid().as_raw().to_string())),
        "user.home" => environment("HOME"),
        "user.dir" => directory(std::env::current_dir()),
        "java.io.tmpdir" => Some("/tmp".to_owned()),
        "file.separator" => Some("/".to_owned()),
        "path.separator" => Some(":".to_owned()),
        "os.name" => Some("Linux".to_owned()),
        "hadoop.home.dir" => environment("HADOOP_HOME"),
        "hadoop.log.dir" => environment("HADOOP_LOG_DIR"),
        _ => None,
    }
}

/// Login name of the process's user, as Java finds it.
fn user_of_process() -> Option<String> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let table = std::fs::read_to_string("/etc/passwd").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "one" => Some("1".to_owned()),
            "two" => Some("${one}${one}".to_owned()),
            "key1" => Some("nested".to_owned()),
            "loop" => Some("${loop}".to_owned()),
            "grow" => Some("x${grow}x".to_owned()),
            _ => None,
        };
        let environment = |name: &str| match name {
            "SET" => Some("set".to_owned()),
            "EMPTY" => Some(String::new()),
            "USER" => Some("hdfs".to_owned()),
            _ => None,
        };
        substitute(text, &lookup, &environment)
    }

    #[test]
    fn other_keys_are_expanded_recursively_and_nested() {
        assert_eq!(expand("a${two}b").as_deref(), Ok("a11b"));
        assert_eq!(expand("${key${one}}").as_deref(), Ok("nested"));
        assert_eq!(expand("no reference").as_deref(), Ok("no reference"));
    }

    #[test]
    fn what_nothing_answers_stays() {
        for text in ["${nope}/x", "${}a", "${ one }", "$c ${c", "}${", "a}b"] {
            assert_eq!(expand(text).as_deref(), Ok(text));
        }
        // Hadoop stops at the first reference without an answer.
        assert_eq!(expand("${nope}${one}").as_deref(), Ok("${nope}${one}"));
    }

    #[test]
    fn environment_with_and_without_defaults() {
        assert_eq!(expand("${env.SET}").as_deref(), Ok("set"));
        assert_eq!(expand("${env.NOPE}").as_deref(), Ok("${env.NOPE}"));
        assert_eq!(expand("${env.NOPE-y}${env.NOPE:-z}").as_deref(), Ok("yz"));
        assert_eq!(
            expand("[${env.EMPTY-y}${env.EMPTY:-z}]").as_deref(),
            Ok("[z]")
        );
        assert_eq!(
            expand("${env.SET-y}${env.SET:-a:b-c}").as_deref(),
            Ok("setset")
        );
        assert!(
            !expand("/tmp/hadoop-${user.name}")
                .expect("a user has a name")
                .contains('$')
        );
    }

    #[test]
    fn endless_references_are_refused() {
        assert!(expand("${loop}").unwrap_err().contains("20 substitutions"));
        assert!(expand("${grow}").unwrap_err().contains("20 substitutions"));
    }
}
