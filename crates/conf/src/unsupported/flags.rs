//! Flags and agents of the JVM, in the environment and in the scripts that set it.

use std::path::Path;

use crate::read_java_files::{lines, read, shown, words};

/// Variables whose words a DataNode's JVM gets.
const VARIABLES: [&str; 5] = [
    "HDFS_DATANODE_OPTS",
    "HADOOP_DATANODE_OPTS",
    "HADOOP_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
];
/// Scripts of the configuration directory that set them.
const SCRIPTS: [&str; 2] = ["hadoop-env.sh", "hdfs-env.sh"];
/// Flags named in a line, at most.
const NAMED_MAX: usize = 6;

/// A word for the JVM, and where it stands.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) word: String,
    place: String,
}

/// All flags of a DataNode's JVM.
pub(super) fn of(
    conf: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
    said: &mut Vec<String>,
) -> Vec<Flag> {
    let mut flags = Vec::new();
    let mut add = |text: &str, place: String| {
        let of_jvm = |word: &String| word.len() > 1 && word.starts_with('-');
        let found = words(text).into_iter().filter(of_jvm);
        flags.extend(found.map(|word| Flag {
            word,
            place: place.clone(),
        }));
    };
    for name in VARIABLES {
        if let Some(value) = variable(name) {
            add(&value, format!("{name} of the environment"));
        }
    }
    for script in SCRIPTS {
        let Some((path, text)) = read(conf, script, said) else {
            continue;
        };
        for (number, line) in lines(&text) {
            if let Some((name, value)) = assignment(&line) {
                add(value, format!("{}:{number}: {name}", path.display()));
            }
        }
    }
    flags
}

/// One of [`VARIABLES`] that a line of a script sets, and to what.
fn assignment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let line = line.strip_prefix("export").map_or(line, str::trim_start);
    let set = |name: &&str| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix("+=").or_else(|| rest.strip_prefix('='))
    };
    VARIABLES.iter().find_map(|name| Some((*name, set(name)?)))
}

/// What a flag asks of a JVM that an operator would miss here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Agent,
    Jmx,
    Logging,
    OnTrouble,
    GcLog,
    Memory,
    Property,
    Other,
}

impl Asks {
    /// In the order in which they are said.
    const ALL: [Self; 8] = [
        Self::Agent,
        Self::Jmx,
        Self::OnTrouble,
        Self::Logging,
        Self::GcLog,
        Self::Memory,
        Self::Property,
        Self::Other,
    ];

    fn of(word: &str) -> Self {
        let begins = |with: &[&str]| with.iter().any(|with| word.starts_with(with));
        if begins(&["-javaagent:", "-agentlib:", "-agentpath:"]) {
            Self::Agent
        } else if begins(&["-Dcom.sun.management"]) {
            Self::Jmx
        } else if begins(&["-XX:OnOutOfMemoryError", "-XX:OnError", "-XX:+HeapDump"])
            || begins(&[
                "-XX:+ExitOnOutOfMemoryError",
                "-XX:+CrashOnOutOfMemoryError",
            ])
        {
            Self::OnTrouble
        } else if begins(&["-Dhadoop.root.logger", "-Dlog4j", "-Dhadoop.log."])
            || begins(&["-Dhadoop.security.logger", "-Dhdfs.audit.logger"])
        {
            Self::Logging
        } else if begins(&["-Xlog", "-Xloggc", "-verbose:gc", "-XX:+PrintGC"]) {
            Self::GcLog
        } else if begins(&["-Xm", "-Xss", "-XX:MaxDirectMemorySize"]) {
            Self::Memory
        } else if begins(&["-D"]) {
            Self::Property
        } else {
            Self::Other
        }
    }

    /// What is not done, and what to take instead.
    fn instead(self) -> &'static str {
        match self {
            Self::Agent => {
                "is not loaded, since a Hayloft node is no JVM: read its /prom or /jmx instead"
            }
            Self::Jmx => "opens no port for JMX: /jmx of the web port has the beans",
            Self::OnTrouble => {
                "has no effect: have the service manager act when the node ends (exit codes)"
            }
            Self::Logging => "has no effect: HAYLOFT_LOG sets levels, and the log goes to stderr",
            Self::GcLog => "has no effect: there is no garbage collector, and no pause to log",
            Self::Memory => "has no effect: hayloft.memory.limit bounds the memory for transfers",
            Self::Property => "has no effect: properties of Java are not read",
            Self::Other => "has no effect: it is for a JVM",
        }
    }
}

/// Says what has no effect: each agent, other flags of one place by what they ask for.
pub(super) fn say(flags: &[Flag], lines: &mut Vec<String>) {
    let mut places: Vec<&str> = flags.iter().map(|flag| flag.place.as_str()).collect();
    places.dedup();
    for place in places {
        for asks in Asks::ALL {
            let here = flags.iter().filter(|flag| flag.place == place);
            let words = here.filter(|flag| Asks::of(&flag.word) == asks);
            let words: Vec<String> = words.map(|flag| shown(&flag.word)).collect();
            let groups = words.chunks(if asks == Asks::Agent {
                1
            } else {
                words.len().max(1)
            });
            lines.extend(groups.map(|words| {
                let named = words.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
                let more = words.len().saturating_sub(NAMED_MAX);
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                format!("{place}: {}{more} {}", named.join(" "), asks.instead())
            }));
        }
    }
}
