//! Lines of code have a budget, so that a feature says what it replaces or why the product grows.

use std::path::Path;

use super::text::{code_of, files, repository};

/// What is counted together, and how many lines it may have. Raise a number in the change that
/// needs it, with a line here that says for what.
const BUDGETS: [(&str, &[&str], usize); 4] = [
    (
        "the node with its libraries",
        &[
            "client",
            "coder",
            "conf",
            "crc",
            "gss",
            "io",
            "node",
            "parity",
            "protection",
            "rpc",
            "sasl",
            "snapshot",
            "store",
            "wire",
        ],
        // The goal is 56,000. What came since: parity that goes on beside nodes and disks that
        // fail, disks that die by halves, and what a process may lack. A node finds itself what is
        // slow there, as `hayloft top` did before. Services that panic begin again. Records
        // that outlived their groups count for nothing. Three files were split, so that each name
        // says what its file decides. Snapshots in object stores, 2,800. Block tokens, 950.
        // Threads that are counted before a start, 110. Snapshots: replicas whose files do not fit
        // each other, directories that cannot be read, the last snapshot that lacks nothing, 110;
        // a clock that was ahead, a prune beside a restore, a store that may only be read, folders
        // and directories of others, 120; nodes at work that a prune leaves out, 60.
        // Kerberos: the library and its keytabs 880, both sides of RPC 1,500, the rest 330. What
        // callers with tickets may cost others, logins beside a KDC that hangs, rules that are read
        // as Java reads them, and what the log says of callers that are not believed: 320.
        // Who may call which protocol, 330; filters before web pages, and their tickets, 770;
        // stores of passwords that Hadoop wrote, 410.
        // A file that is deleted, and the log as a file: 20. Metrics under Apache's names, 160.
        // SASL on the data port and for block tokens on the RPC port: DIGEST-MD5 and ciphers 970,
        // handshakes and streams of both sides 1,070, RPC 200, keys 80. What protects a node, in
        // words, 120. WebHDFS on protected clusters: tokens of users as text, RPC and keys by
        // them, 400. Short-circuit reads: shared memory and slots 360, the domain socket and its
        // path 310, operations and descriptors 300, files and what watches them 110. Threads of
        // clients that write logs, and where what they begin runs, 285. Classes that tell peers
        // apart: which are served, and what stands in the place of the others, 50. Metrics that
        // are pushed: sinks, options and filters of the file 430, their forms and connections 385.
        // What commands ask a NameNode by RPC, and as whom, 95. Places of a log's writer, 10;
        // what parity mends is not passed, 15; sums of a file system, 10. Ports that are opened
        // before root is given up, 70. What a client may read of a striped group, and names that
        // are numbers, 10. Plans of the disk balancer: what they may say 150, the moves 175, states
        // and JSON 330, RPC and keys 40; moves to one volume and its list of replicas 85. Metrics
        // that a dead connection took, and sinks that hang, 50; which NameNode answered, 12. Moves
        // that end where a disk hangs or the store does, and what plans say of them, 75. Packets
        // that are messages of SASL, and NameNodes that hang, 40. Cached replicas: locked files 90,
        // the budget and what is cached 340, orders and loading 350, anchors 60, orders and reports
        // of NameNodes 130, keys, limits and the rest 95; mappings and what is dropped apart, 102.
        // Blocked groups that the system does not know, 24. Files in memory first: what is there
        // and what was done 380, placement 95, copies 200, evictions and what memory loses 225, a
        // start 105, deletes 75, metrics and the rest 110; what a review of them found, 110.
        // What is copied out of the page cache for encrypted connections, 20. What a server's word
        // counts for in the exchange with Kerberos, 35; users of encryption keys, read in one
        // place, 30; commands that open no data port, 12. Replicas in memory beside disks that
        // hang, and openings that end with their volume, 171. Recoveries of other pools' blocks, 6.
        // A pool that one name service has alone, tokens that are wanted and off, ports that take
        // protection away, and `/conf` without the environment, 151; a look at data directories
        // before a start, 55; logs that write in place, 43; averages to peers, 20; less noise, 16.
        // Parity's records of a later version, which stay, 19. What a new replica left on a volume
        // that did not take it, and a pool that is waited for, 31. Devices: a second header, what a
        // check finds, and their own queues, 217; what others wrote to them, and stubs that cannot
        // be read, 71. Headers that cannot be read, what a check of devices goes on past, and a
        // lock that comes before a device, 268. Moves that are written back piece by piece and
        // rest beside clients, 34; memory that a writer which ended early gives back, 33. What
        // another node wrote long before it stopped is not in doubt, also at the second start, 61.
        // Turns of a head that begin with one request, and hints for checksums, 12. Moves whose
        // next pieces are copied while the device takes the last ones, 34. Pools that were
        // not loaded before a stop stay in doubt, 67. A replica with the stamp of a recovery that
        // it refused is told as bad, 4. Addresses of nodes that are reached by another host's, 40.
        // Types of what nothing looks at in a plan, 23. What a
        // connection began goes on after its panic, 5.
        85_303,
    ),
    // The goal is 7,500 without cluster, which `up` and `top` took from the tools. What came since:
    // `plan durability`, its formulas and the simulation that checks them. `topology`: six sources
    // of a node's place, its files and the look at disks. `snapshot`, 550.
    // What `topology` finds and leaves as it is: owners, modes, links, files of others, 100.
    // What is refused where there is Kerberos, 10. Warnings of `snapshot` on stderr, and claims
    // that an interrupted one gives up, 25.
    // `swap`, which changes a host's node over and back, 1,210; the log as a rotated file, 130; the
    // manual and completions of packages, 30. `up --secure`: the realm, which the tools had, 190;
    // its keys and processes 280, TLS and realms of the launcher 80. What protects a node, 60.
    // Whether a node answers, for probes of containers, 75; signals on kernels that hold no
    // process, 10. A start that would stay root where Apache's gives it up, 20; words of peers
    // that look like lines of the log, 20. `swap` with Kerberos: NameNodes asked by RPC, and who
    // asks, 145. What they heard of a node since it was started, and whether it may read its
    // keytab, 70. A start as root that becomes another user, and looks what is left of root, 185.
    // One NameNode's word at a time, every name service tried, and asks that keep to the time, 61.
    // A file tried in each name service, and one turn-over at a time on a host, 84. Commands of a
    // swap that hang, units of other names, and a lock that outlasts a killed swap, 101.
    // A number is no name of a secure user, 10. Pages for TLS alone or for tickets, which `top` and
    // `trash` do not ask, 23. `hadoop-env.sh` asked as the node's user, and data directories that
    // are looked at before Apache's node is stopped, 54. A node where the change of a swap was
    // killed, 34; scripts that root's shell sources, and an old profile, 31. A process is stopped
    // when each of its threads is, 13. `profile compute`, its properties, and what a directory
    // has of them, 759. `plan cost`, 468. `cold watch`: passes and what they remember 820, audit
    // logs 460, its state 320, what is looked at before it sets 140, the rest 148. `engine fsck`,
    // 103; what it cannot read, 7. An installation that is named, and no other's scripts, 17.
    // Versions on pages of the manual, 10.
    (
        "the commands",
        &["cli", "cluster", "console", "topology"],
        21_271,
    ),
    // Thirty-seven checks of hosts, disks and networks: what each sees, does, and what mends it.
    // Who has the node's ports, whose NameNode it is and how many threads are left: 270.
    ("the doctor", &["doctor"], 3_330),
    // Snapshots beside a bare copy and beside clients, and the rules for what is claimed, 330.
    (
        "the tools",
        &["bench", "contract", "lab", "testkit"],
        // The work that three suites of protection had each for itself, 150.
        // Rows of logs, and of encrypted data, 105. Quick runs of one round, and
        // one experiment at a time, 28. Encrypted rows beside those in clear, in one run, what they
        // may cost more, and clients that are the limit, 124. Little data for quick jobs, 3.
        // One tracer for all clusters of a run, 11. What grows while a load is held, 14. Reads by
        // clients of the host, 350; a million blocks that are made, reported and deleted, 254;
        // libhadoop for stock nodes in each row, 13. The disk balancer's rows, 340; starts without
        // what was unfair, 110. Experiments: tasks 570, power 442. HBase's log, 150.
        // Calls by RPC from threads that wait, in one place, 17. A disk without a file system, 221.
        // Mappings of a process, 6; marks of a stop that blocks were made behind, 10. What readers
        // wait for beside a slow replica 645, and what becomes slow while a testbed runs 85.
        // Starts and deletes among losses, 7; a slow node that is not listed, 6. All
        // experiments go on where they were stopped, and a bar for raw devices, 32. Policies and
        // probes in one place of the suites, 12: 60 of theirs are gone.
        26_041,
    ),
];

/// Lines of a source that are code: no tests, no comments, none that are empty.
fn code_lines(text: &str) -> usize {
    let lines = code_of(text).lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

/// Whether a file is of tests as a whole.
fn of_tests(path: &Path) -> bool {
    let test = |part: &str| part == "tests" || part.ends_with("tests.rs");
    path.components()
        .any(|part| test(&part.as_os_str().to_string_lossy()))
}

/// Code lines of the sources of a crate.
fn lines_of(name: &str) -> usize {
    let dir = repository().join("crates").join(name).join("src");
    let sources = files(&dir, &["rs"]).into_iter();
    let sources = sources.filter(|path| !of_tests(path.strip_prefix(&dir).expect("below it")));
    let texts = sources.map(|path| std::fs::read_to_string(path).expect("readable"));
    texts.map(|text| code_lines(&text)).sum()
}

#[test]
fn code_keeps_to_its_budget() {
    let mut wrong = Vec::new();
    for (what, crates, budget) in BUDGETS {
        let each: Vec<(&str, usize)> = crates.iter().map(|name| (*name, lines_of(name))).collect();
        let lines: usize = each.iter().map(|(_, lines)| lines).sum();
        println!("{what}: {lines} of {budget} lines: {each:?}");
        if lines > budget {
            wrong.push(format!("{what}: {lines} of {budget} lines: {each:?}"));
        }
    }
    let todo = "delete something, or raise the budget and say there for what";
    assert!(wrong.is_empty(), "{todo}:\n{}", wrong.join("\n"));
}

#[test]
fn every_crate_has_a_budget() {
    let budgeted: Vec<&str> = BUDGETS
        .iter()
        .flat_map(|(_, crates, _)| *crates)
        .copied()
        .collect();
    let dir = std::fs::read_dir(repository().join("crates")).expect("lists");
    for entry in dir.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(
            budgeted.contains(&name.as_str()),
            "{name}: add it to BUDGETS"
        );
    }
}
