//! Pages and texts: the node's configuration, its threads, its log's levels.

use std::fmt::Write as _;

use hayloft_conf::Configuration;
use serde_json::{Value, json};

use crate::daemonlog::{self, LogLevels};

/// A property as `/conf` shows it.
struct Shown {
    name: String,
    value: String,
    source: String,
}

/// As Apache's node has it: JSON has values, XML what is written.
fn shown(config: &Configuration, json: bool) -> Vec<Shown> {
    let known = config.settings();
    let mut names: Vec<String> = known.iter().map(|s| s.key.to_owned()).collect();
    names.extend(config.names().map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    let value_of = config.shown_to_callers(json);
    let show = |name: String| {
        let value = value_of(&name);
        let source = config.origin(&name).to_string();
        // The file's name is enough, as Apache's node has it.
        let file = source.rsplit_once(':').map_or(&*source, |(file, _)| file);
        let source = file.rsplit('/').next().unwrap_or(file).to_owned();
        Shown {
            name,
            value,
            source,
        }
    };
    names.into_iter().map(show).collect()
}

/// `/conf`, of one property or all; `None` when there is none of that name.
pub fn conf(config: &Configuration, name: Option<&str>, json: bool) -> Option<String> {
    let mut all = shown(config, json);
    if let Some(name) = name {
        all.retain(|property| property.name == name);
        if all.is_empty() {
            return None;
        }
    }
    if json {
        let of = |p: &Shown| {
            json!({"key": p.name, "value": p.value, "isFinal": false,
            "resource": p.source})
        };
        let list: Vec<Value> = all.iter().map(of).collect();
        let body = match (name, list.first()) {
            (Some(_), Some(one)) => json!({ "property": one }),
            _ => json!({ "properties": list }),
        };
        return Some(body.to_string());
    }
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?><configuration>\n",
    );
    for property in &all {
        let _ = writeln!(
            text,
            "<property><name>{}</name><value>{}</value><final>false</final>\
             <source>{}</source></property>",
            marked_up(&property.name),
            marked_up(&property.value),
            marked_up(&property.source)
        );
    }
    text.push_str("</configuration>\n");
    Some(text)
}

/// As XML and HTML want text.
pub(super) fn marked_up(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() && c != '\n' && c != '\t' => {}
            c => safe.push(c),
        }
    }
    safe
}

/// Id, name and state of each thread of this process.
pub fn threads() -> Vec<(u32, String, char)> {
    let tasks = std::fs::read_dir("/proc/self/task");
    let entries = tasks.into_iter().flatten().flatten();
    let thread = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in brackets and may have some itself.
        let (head, rest) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        Some((id, name, rest.trim_start().chars().next()?))
    };
    let mut all: Vec<_> = entries.filter_map(thread).collect();
    all.sort_unstable();
    all
}

/// `/stacks`: the threads; what they are doing only a debugger could tell.
pub fn stacks() -> String {
    let threads = threads();
    let mut text = format!("Process Thread Dump: \n{} active threads\n", threads.len());
    for (id, name, state) in threads {
        let state = match state {
            'R' => "RUNNABLE",
            'D' => "BLOCKED",
            _ => "WAITING",
        };
        let _ = writeln!(text, "Thread {id} ({name}):\n  State: {state}");
    }
    text
}

/// `/logLevel`. `hadoop daemonlog` prints the lines that begin with the remark.
pub fn log_level(levels: Option<&dyn LogLevels>, log: Option<&str>, level: Option<&str>) -> String {
    let mut text = String::from("<!doctype html><title>Log Level</title><h1>Log Level</h1>");
    let mut say = |what: &str, value: &str| {
        let _ = writeln!(
            text,
            "<!-- OUTPUT -->{what}: <b>{}</b><br />",
            marked_up(value)
        );
    };
    let named = log.filter(|log| !log.trim().is_empty()).map(str::trim);
    if let Some(log) = named {
        say("Submitted Class Name", log);
        match (levels, daemonlog::target_of(log)) {
            (None, _) => say("Log Class", "none: this program's log has no levels"),
            (_, None) => say("Log Class", "none: nothing here logs under this name"),
            (Some(levels), Some(target)) => {
                let part = if target.is_empty() { "all" } else { &target };
                say("Log Class", part);
                if let Some(level) = level.map(str::trim).filter(|level| !level.is_empty()) {
                    say("Submitted Level", level);
                    match levels.set(&target, level) {
                        Ok(()) => say("Setting Level to", level),
                        Err(why) => say("Bad Level", &why),
                    }
                }
                say("Effective Level", levels.level(&target));
            }
        }
    }
    text.push_str(
        "<form>Class Name: <input name=\"log\" size=\"50\"> Level: <input name=\"level\"> \
         <input type=\"submit\" value=\"Get or Set\"></form>",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown_and_marks_are_text() {
        let config = Configuration::from_properties([
            ("ssl.server.keystore.password", "hunter2"),
            ("fs.s3a.secret.key", "k"),
            ("my.own", "a<b&\"c\""),
        ]);
        let config = config.expect("valid");
        for json in [false, true] {
            let text = conf(&config, None, json).expect("all");
            assert!(
                !text.contains("hunter2") && text.contains("redacted"),
                "{text}"
            );
        }
        let one = conf(&config, Some("my.own"), false).expect("set");
        assert!(
            one.contains("<value>a&lt;b&amp;&quot;c&quot;</value>"),
            "{one}"
        );
        assert_eq!(conf(&config, Some("no.such"), false), None);
        let default = conf(&config, Some("dfs.datanode.http.address"), true).expect("known");
        assert!(default.contains("0.0.0.0:9864"), "{default}");
    }

    fn value_of(config: &Configuration, name: &str) -> String {
        let body = conf(config, Some(name), true).expect("set");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        body["property"]["value"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    #[test]
    fn what_refers_to_a_secret_is_one() {
        let config = Configuration::from_properties([
            ("my.password", "hunter2"),
            ("my.url", "jdbc:x?p=${my.password}"),
            ("my.other", "<${my.url}>"),
            ("my.user", "${my.name}"),
            ("my.name", "alice"),
        ]);
        let config = config.expect("valid");
        let values = ["my.url", "my.other", "my.user"].map(|name| value_of(&config, name));
        assert_eq!(values, ["<redacted>", "<redacted>", "alice"]);
    }

    #[test]
    fn the_environment_is_not_shown_and_xml_is_as_it_is_written() {
        let path = std::env::var("PATH").expect("set where tests run");
        let config = Configuration::from_properties([
            ("my.path", "a:${env.PATH}"),
            ("my.nested", "${${my.name}.PATH}"),
            ("my.other", "${my.path}"),
            ("my.default", "${env.NO_SUCH_VARIABLE:-b}"),
            ("my.password", "${env.PATH}"),
            ("my.url", "c/${my.name}"),
            ("my.name", "env"),
        ]);
        let config = config.expect("valid");
        assert_eq!(config.text("my.nested").as_deref(), Some(&*path));
        for json in [false, true] {
            let all = conf(&config, None, json).expect("all");
            assert!(!all.contains(&path), "{all}");
        }
        for (name, written) in [
            ("my.path", "a:${env.PATH}"),
            ("my.nested", "${${my.name}.PATH}"),
            ("my.other", "${my.path}"),
            ("my.default", "${env.NO_SUCH_VARIABLE:-b}"),
            ("my.password", "<redacted>"),
        ] {
            assert_eq!(value_of(&config, name), written, "{name}");
        }
        assert_eq!(value_of(&config, "my.url"), "c/env");
        let xml = conf(&config, Some("my.url"), false).expect("set");
        assert!(xml.contains("<value>c/${my.name}</value>"), "{xml}");
    }

    #[test]
    fn the_configuration_says_which_names_are_of_secrets() {
        let of = |list| {
            let config = Configuration::from_properties([
                ("hadoop.security.sensitive-config-keys", list),
                ("a.pin.b", "1"),
                ("a.password", "2"),
            ]);
            let config = config.expect("valid");
            ["a.pin.b", "a.password"].map(|name| value_of(&config, name))
        };
        assert_eq!(of("\n  x$ ,\n a.p.n\n"), ["<redacted>", "2"]);
        assert_eq!(
            of("(?!none), x"),
            ["<redacted>"; 2],
            "a pattern that is none"
        );
    }

    /// Keeps what it is told.
    struct Kept(std::sync::Mutex<String>);

    impl LogLevels for Kept {
        fn level(&self, _target: &str) -> &'static str {
            "DEBUG"
        }

        fn set(&self, target: &str, level: &str) -> Result<(), String> {
            if level == "LOUD" {
                return Err("no level is called LOUD".into());
            }
            *self.0.lock().expect("not poisoned") = format!("{target}={level}");
            Ok(())
        }
    }

    #[test]
    fn levels_are_set_by_class_and_marks_are_text() {
        let kept = Kept(std::sync::Mutex::default());
        let ask = |log, level| log_level(Some(&kept), Some(log), level);
        let class = "org.apache.hadoop.hdfs.server.datanode.DataNode";
        let page = ask(class, Some("DEBUG"));
        assert!(
            page.contains("<!-- OUTPUT -->Effective Level: <b>DEBUG</b>"),
            "{page}"
        );
        assert_eq!(*kept.0.lock().expect("not poisoned"), "hayloft_node=DEBUG");
        assert!(ask(class, Some("LOUD")).contains("Bad Level"));
        let odd = ask("<script>", None);
        assert!(
            odd.contains("&lt;script&gt;") && odd.contains("nothing here logs"),
            "{odd}"
        );
        assert!(!log_level(None, None, None).contains("OUTPUT"));
    }

    #[test]
    fn this_thread_is_listed() {
        let threads = threads();
        assert!(!threads.is_empty());
        assert!(stacks().contains(&format!("{} active threads", threads.len())));
    }
}
