//! Keeps `bench/results/0.1.0/experiments.md` equal to the raw data beside it: a table a set of
//! figures. With `HAYLOFT_BLESS=1` the page is written anew instead.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder of the raw data and the page.
const FOLDER: &str = "../../bench/results/0.1.0";

const HEAD: &str = "# Figures of the experiments

This page is generated from [experiments.json](experiments.json) by
`HAYLOFT_BLESS=1 cargo test -p hayloft-lab --test figures`: do not edit it.
[The experiments](../../../docs/evaluate/experiments.md) says what follows from which figure.

Three figures in a cell are the median (lowest to highest) of the rounds. Figures with commas
between them are one a round, or one for writing and one for reading. Shares are from 0 to 1.
Answers of a modelled disk that came more than 2 ms late are counted as late.
";

/// How the values of a cell are written.
#[derive(Clone, Copy)]
enum Form {
    /// Each value, with commas between them.
    Each,
    /// Median, lowest and highest.
    Spread,
    /// Values of several paths, with slashes between them.
    Joined,
}

use Form::{Each, Joined, Spread};

/// Title, name of the set, path of its rows, and columns: heading, path (several with `|`), form.
type Table = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str, Form)],
);

const TABLES: &[Table] = &[
    (
        "Kills, power cuts and bad disks",
        "durability",
        "rows/*",
        &[
            ("event", "event", Each),
            ("on", "file_system", Each),
            ("node", "node", Each),
            (
                "hflushed, lost/all",
                "sums/flushed/lost|sums/flushed/acknowledged",
                Joined,
            ),
            (
                "15 s before",
                "sums/flushed_old/lost|sums/flushed_old/acknowledged",
                Joined,
            ),
            (
                "closed, lost/all",
                "sums/closed/lost|sums/closed/acknowledged",
                Joined,
            ),
            (
                "15 s before",
                "sums/closed_old/lost|sums/closed_old/acknowledged",
                Joined,
            ),
            (
                "40 s before",
                "sums/closed_older/lost|sums/closed_older/acknowledged",
                Joined,
            ),
            (
                "hsynced, lost/all",
                "sums/hsynced/lost|sums/hsynced/acknowledged",
                Joined,
            ),
            (
                "SYNC_BLOCK, lost/all",
                "sums/closed_synced/lost|sums/closed_synced/acknowledged",
                Joined,
            ),
            ("unreadable/all", "sums/unreadable|sums/counted_on", Joined),
        ],
    ),
    (
        "Failure domains",
        "domains",
        "*",
        &[
            ("placement", "placement", Each),
            ("replicas", "replication", Each),
            ("wrongly placed, written", "written/violations", Each),
            ("without replica, host killed", "unreadable", Each),
            ("s until healed", "healed_seconds", Each),
            ("wrong, host back", "returned/violations", Each),
            ("wrong, balanced", "balanced/violations", Each),
            ("blocks moved", "moved", Each),
            ("waited", "waited", Each),
        ],
    ),
    (
        "Clients and nodes apart",
        "pairs",
        "*",
        &[
            ("arrangement", "arrangement", Each),
            ("clients", "clients", Each),
            ("write MB/s", "write", Spread),
            ("read MB/s", "read", Spread),
            ("conflicts", "conflicts", Each),
            ("disks busy", "busy", Each),
            ("processors busy", "cpu", Each),
            ("late", "late", Each),
        ],
    ),
    (
        "One process of eight virtual nodes, or eight stock DataNodes",
        "super",
        "beside/*",
        &[
            ("kind", "kind", Each),
            ("write MB/s", "rounds/*/mbs", Each),
            ("user and system s/GiB", "rounds/*/cpu_s_gib/*", Each),
            ("memory MiB", "rounds/*/pss_mib", Each),
            ("warm", "warm", Each),
        ],
    ),
    (
        "Jobs over a node of many disks",
        "super",
        "storage/*",
        &[
            ("storage", "storage", Each),
            ("jobs", "jobs/*/job", Each),
            ("s", "jobs/*/seconds/*", Each),
            ("disks busy", "jobs/*/disk_busy", Each),
            ("waited", "jobs/*/waited", Each),
            ("blocks copied, workers off", "power/copied", Each),
            ("blocks missing then", "power/missing", Each),
        ],
    ),
    (
        "Parity and writers",
        "parity",
        "rows/*",
        &[
            ("memory MiB (none: no parity)", "memory_mib", Each),
            ("burst MB/s", "burst_mbs/*", Each),
            ("with parity MB/s", "sustained_mbs/*", Each),
            ("share from memory", "from_memory", Each),
            ("waited", "waited", Each),
        ],
    ),
    (
        "Reads while a disk is missing",
        "degraded",
        "finding",
        &[
            ("before, MB/s", "healthy_mbs/*", Each),
            ("decoded, MB/s", "degraded_mbs/*", Each),
            ("units rebuilt", "lost_units", Each),
            ("bytes read by the rebuild", "rebuild_read_bytes", Each),
            ("rebuild s", "rebuild_s", Each),
        ],
    ),
    (
        "Layouts",
        "layouts",
        "*",
        &[
            ("layout", "arrangement", Each),
            ("clients", "clients", Each),
            ("write MB/s", "write", Spread),
            ("read own MB/s", "read", Spread),
            ("read other MB/s", "read_other", Spread),
            ("disks busy", "busy", Each),
            ("processors busy", "cpu", Each),
        ],
    ),
    (
        "Layouts as servers grow",
        "scaling",
        "*",
        &[
            ("layout", "arrangement", Each),
            ("servers", "clients", Each),
            ("write MB/s", "write", Spread),
            ("read MB/s", "read", Spread),
            ("disks busy", "busy", Each),
            ("waited", "waited", Each),
        ],
    ),
    (
        "TestDFSIO",
        "dfsio",
        "*",
        &[
            ("arrangement", "arrangement", Each),
            ("write MiB/s of a task", "write/rounds/*/throughput", Each),
            ("read MiB/s of a task", "read/rounds/*/throughput", Each),
            ("disk busy, write", "write/disk_busy", Each),
            ("disk busy, read", "read/disk_busy", Each),
            ("waited, write", "write/waited", Each),
            ("waited, read", "read/waited", Each),
        ],
    ),
    (
        "A disk on another host",
        "netblock",
        "*",
        &[
            ("arrangement", "arrangement", Each),
            ("write MB/s", "write/mbs", Spread),
            ("read MB/s", "read/mbs", Spread),
            ("disk busy, write", "write/disk_busy", Each),
            ("disk busy, read", "read/disk_busy", Each),
            ("processors, write", "write/cpu", Each),
            ("processors, read", "read/cpu", Each),
        ],
    ),
    (
        "MooseFS and HDFS: rates",
        "pfs",
        "*/rows/*",
        &[
            ("figure", "figure", Each),
            ("servers", "servers", Each),
            ("way", "way", Each),
            ("what", "what", Each),
            ("MB/s", "mbs/0", Each),
            ("waited", "waited", Each),
            ("disk busy", "disk_busy", Each),
        ],
    ),
    (
        "MooseFS and HDFS: jobs",
        "pfs",
        "*/jobs/*",
        &[
            ("way", "way", Each),
            ("job", "job", Each),
            ("s", "seconds/0", Each),
            (
                "maps beside their data/all",
                "local_maps/0|local_maps/1",
                Joined,
            ),
        ],
    ),
    (
        "MooseFS and HDFS: what was wanted",
        "pfs",
        "*/bars/*",
        &[
            ("what", "what", Each),
            ("wanted", "wanted", Each),
            ("at most", "at_most", Each),
            ("got", "got", Each),
        ],
    ),
    (
        "What HDFS leaves of a disk",
        "native",
        "rows/*",
        &[
            ("access", "access", Each),
            ("replicas", "replicas", Each),
            ("write MB/s", "measured/rounds/*/write/mbs", Each),
            ("read MB/s", "measured/rounds/*/read/mbs", Each),
            (
                "mean run written",
                "measured/rounds/*/write/disk/run_mean_bytes",
                Each,
            ),
            (
                "disk busy, write",
                "measured/rounds/*/write/disk/busy",
                Each,
            ),
        ],
    ),
    (
        "What streams leave of a disk",
        "streams",
        "rows/*",
        &[
            ("on", "file_system", Each),
            ("access", "access", Each),
            ("streams", "streams", Each),
            ("write MB/s", "measured/rounds/*/write/mbs", Each),
            ("read MB/s", "measured/rounds/*/read/mbs", Each),
            ("one of four alone", "measured/rounds/*/alone/mbs", Each),
            ("processors", "measured/rounds/*/write/processors", Each),
        ],
    ),
    (
        "What sparse and allocated files cost under a virtual disk",
        "virtual-disks",
        "rows/*",
        &[
            ("under it", "setup/under", Each),
            ("written through", "setup/write_through", Each),
            ("write MB/s", "measured/rounds/*/write/mbs", Each),
            ("read MB/s", "measured/rounds/*/read/mbs", Each),
            ("two write", "measured/rounds/*/write_two/mbs", Each),
            ("two read", "measured/rounds/*/read_two/mbs", Each),
        ],
    ),
    (
        "What file system and page cache cost",
        "fscost",
        "rows/*",
        &[
            ("file system (none: device)", "way/file_system", Each),
            ("O_DIRECT", "way/direct", Each),
            ("write s/GiB", "measured/rounds/*/write/machine_s_gib", Each),
            ("read s/GiB", "measured/rounds/*/read/machine_s_gib", Each),
        ],
    ),
    (
        "Blocks as objects of ADIOS",
        "hadiofs",
        "rows/*",
        &[
            ("way", "way/node", Each),
            ("replicas", "way/replicas", Each),
            ("writers", "way/writers", Each),
            ("write MB/s", "rounds/*/acknowledged_mbs", Each),
            ("write s/GiB", "rounds/*/write_s_gib", Each),
            ("read MB/s", "rounds/*/read_mbs", Each),
            ("read s/GiB", "rounds/*/read_s_gib", Each),
        ],
    ),
    (
        "dd on the modelled disk",
        "modelled-disk-dd",
        "*",
        &[
            ("case", "case", Each),
            ("streams", "streams", Each),
            ("MB/s", "mb_s", Each),
            ("seeks", "seeks", Each),
            ("utilisation", "utilisation", Each),
            ("late", "late", Each),
        ],
    ),
];

/// The values at a path; `*` stands for each element of an array.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let Some((name, rest)) = path
        .split_once('/')
        .or((!path.is_empty()).then_some((path, "")))
    else {
        return vec![value];
    };
    if name == "*" {
        let each = value.as_array().into_iter().flatten();
        return each.flat_map(|one| at(one, rest)).collect();
    }
    let index = name
        .parse::<usize>()
        .ok()
        .and_then(|index| value.get(index));
    let inner = index.or_else(|| value.get(name));
    inner.map_or_else(Vec::new, |inner| at(inner, rest))
}

fn number(value: f64) -> String {
    match value.abs() {
        whole if whole >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        tens if tens >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Number(of) => number(of.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(word).collect::<Vec<_>>().join(", "),
        Value::Object(all) => {
            let named = all
                .iter()
                .map(|(name, value)| format!("{name} {}", word(value)));
            named.collect::<Vec<_>>().join(", ")
        }
    }
}

fn cell(row: &Value, path: &str, form: Form) -> String {
    let values = path.split('|').flat_map(|path| at(row, path));
    let words: Vec<String> = match form {
        Spread => at(row, path)
            .iter()
            .flat_map(|v| at(v, "*"))
            .map(word)
            .collect(),
        Each | Joined => values.map(word).collect(),
    };
    match (form, words.as_slice()) {
        (_, []) => "-".into(),
        (Spread, [middle, low, high]) if low != high => format!("{middle} ({low} to {high})"),
        (Spread, [middle, ..]) => middle.clone(),
        (Joined, words) => words.join("/"),
        (_, words) => words.join(", "),
    }
}

/// The commands and machine that a set names, if it does.
fn origin(set: &Value) -> String {
    let paths = ["command", "storage_command", "*/command"];
    let commands = paths.iter().flat_map(|path| at(set, path));
    let commands: Vec<String> = commands
        .map(|text| format!("- `{}`\n", word(text)))
        .collect();
    if commands.is_empty() {
        return "The raw data names no command.\n".into();
    }
    commands.concat()
}

fn page(raw: &Value) -> String {
    let mut text = HEAD.to_owned();
    for (title, name, rows, columns) in TABLES {
        let set = &raw[*name];
        text += &format!("\n## {title}\n\n`{name}`\n\n{}\n", origin(set));
        let headings: Vec<&str> = columns.iter().map(|(heading, ..)| *heading).collect();
        text += &format!(
            "| {} |\n|{}\n",
            headings.join(" | "),
            "---|".repeat(columns.len())
        );
        for row in at(set, rows) {
            let cells = columns.iter().map(|(_, path, form)| cell(row, path, *form));
            text += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    text
}

#[test]
fn the_page_is_what_the_raw_data_makes() {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let read = |name: &str| std::fs::read_to_string(folder.join(name));
    let raw = read("experiments.json").expect("the raw data is there");
    let raw: Value = serde_json::from_str(&raw).expect("it is JSON");
    for set in raw.as_object().expect("sets by name").keys() {
        let shown = TABLES.iter().any(|(_, name, ..)| name == set);
        assert!(shown, "no table shows the set {set}");
    }
    let made = page(&raw);
    if std::env::var_os("HAYLOFT_BLESS").is_some() {
        std::fs::write(folder.join("experiments.md"), &made).expect("written");
    }
    assert!(
        read("experiments.md").is_ok_and(|page| page == made),
        "experiments.md is not what experiments.json makes: run 'HAYLOFT_BLESS=1 cargo test \
            -p hayloft-lab --test figures'"
    );
}
