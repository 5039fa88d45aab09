//! What a loaded configuration asks for that this version does not do.

use super::configuration::Configuration;
use super::data_dir::CapacityRatio;
use super::error::ConfigError;
use super::keys;
use super::transfer_protection::Unserved;
use super::unsupported::{self, Unsupported};
use super::volume_keys::{OfVolumes, names_for};

impl Configuration {
    /// Names of keys that have an effect in Apache's DataNode and none here, with the entry that
    /// says why. Only those that were set to something else than the default.
    fn unsupported_keys(&self) -> impl Iterator<Item = (&str, &'static Unsupported)> {
        let port = self.get(&keys::DATANODE_IPC_ADDRESS).port;
        unsupported::all().flat_map(move |entry| {
            let prefix = entry.prefix(port);
            let names = self.names().filter(move |name| match &prefix {
                Some(prefix) => name.starts_with(prefix.as_str()) && keys::find(name).is_none(),
                None => *name == entry.name,
            });
            names
                .filter(|name| entry.asks_for_more(&self.text(name).unwrap_or_default()))
                .map(move |name| (name, entry))
        })
    }

    /// Everything worth a line in the log at start, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = self.notes().to_vec();
        lines.extend(self.ram_disks());
        lines.extend(self.half_a_domain_socket());
        lines.extend(self.of_no_volume());
        lines.extend(self.shares_of_no_volume());
        lines.extend(self.metrics_sinks().warnings);
        lines.extend(self.ports_without_protection());
        lines.extend(self.unsupported_keys().map(|(name, entry)| {
            format!(
                "{name} ({}) has no effect: {}",
                self.origin(name),
                entry.ignored
            )
        }));
        let unknown = |name: &&str| is_unknown(name) && !self.is_of_virtual_node(name);
        lines.extend(self.names().filter(unknown).map(|name| {
            let hint = nearest(name);
            let hint = hint.map_or_else(String::new, |near| format!(": did you mean {near}?"));
            format!(
                "{name} ({}) is not a key of this node{hint}",
                self.origin(name)
            )
        }));
        lines
    }

    /// A line for directories on RAM disks that no memory is set aside for: nothing is written
    /// there. And one where the node ends with that memory, as Apache's does.
    fn ram_disks(&self) -> Vec<String> {
        let dirs = self.get(&keys::DATA_DIRS);
        let transient: Vec<String> = dirs
            .iter()
            .filter(|dir| dir.storage_type.is_transient())
            .map(ToString::to_string)
            .collect();
        let mut says = Vec::new();
        if transient.is_empty() {
            return says;
        }
        let name = keys::DATA_DIRS.name();
        let about = format!("{name} ({}): {}", self.origin(name), transient.join(", "));
        if self.get(&keys::MAX_LOCKED_MEMORY) == 0 {
            says.push(format!(
                "{about}: without {} LAZY_PERSIST files are written to DISK at once: set the bytes \
                    of memory that they may take",
                keys::MAX_LOCKED_MEMORY.name()
            ));
        }
        if self.get(&keys::FAILED_VOLUMES_TOLERATED) == 0 && self.get(&keys::PARITY).is_none() {
            says.push(format!(
                "{about}: the node stops when this memory is lost, as when a disk is: set {} to 1, \
                    and it goes on",
                keys::FAILED_VOLUMES_TOLERATED.name()
            ));
        }
        says
    }

    /// A line for each key that ends in a directory which is none of the volumes: a slash too many,
    /// or a volume gone.
    fn of_no_volume(&self) -> Vec<String> {
        let dirs = self.get(&keys::DATA_DIRS);
        let read_as = |base: &'static str| dirs.iter().map(move |dir| names_for(base, dir));
        let is_reserve = |name: &str| {
            let bases = [keys::DU_RESERVED.name(), keys::DU_RESERVED_PERCENT.name()];
            let mut names = bases.into_iter().flat_map(read_as).flatten();
            names.any(|read| read == name)
        };
        let is_engine = |name: &str| {
            let mut names = read_as(keys::IO_ENGINE.name());
            names.any(|[_, of_directory, _]| of_directory == name)
        };
        let strange = |name: &&str| match OfVolumes::of(name) {
            Some(OfVolumes::Engine) => !is_engine(name),
            // Types of volumes that others have may be in a file for all nodes.
            Some(_) => name.contains('/') && !is_reserve(name),
            None => false,
        };
        let line = |name| {
            format!(
                "{name} ({}) has no effect: it ends in no directory of {}",
                self.origin(name),
                keys::DATA_DIRS.name()
            )
        };
        self.names().filter(strange).map(line).collect()
    }

    /// A line for each share of a mount that is no volume's by Apache's rule.
    fn shares_of_no_volume(&self) -> Vec<String> {
        let dirs = self.get(&keys::DATA_DIRS);
        let ratios = self.get(&keys::SAME_DISK_CAPACITY_RATIO);
        let name = keys::SAME_DISK_CAPACITY_RATIO.name();
        let why = |is_uri: bool| {
            if is_uri {
                "it is no directory of dfs.datanode.data.dir"
            } else {
                "only a file: URI counts, as for Apache's node"
            }
        };
        let strange = ratios
            .iter()
            .filter(|ratio| !ratio.is_uri || !dirs.iter().any(|dir| dir.path == ratio.path));
        let line = |ratio: &CapacityRatio| {
            format!(
                "{name} ({}): [{}]{} has no effect: {}",
                self.origin(name),
                ratio.ratio,
                ratio.path.display(),
                why(ratio.is_uri)
            )
        };
        strange.map(line).collect()
    }

    /// Refuses configurations that demand protection which is not there. A node that served such a
    /// cluster would hand its data to anyone. One that took no notice of the name that a key of
    /// parity had before would run without parity.
    ///
    /// # Errors
    /// [`ConfigError::Unprotected`] or [`ConfigError::Renamed`], naming the key and where it was
    /// set.
    pub fn refuse_unprotected(&self) -> Result<(), ConfigError> {
        self.refuse_unprotected_calls()?;
        self.refuse_unserved(self.unserved_trust())
    }

    /// The same for commands that call NameNodes and open no data port: whom nodes trust there
    /// without proof is nothing to them.
    ///
    /// # Errors
    /// As [`refuse_unprotected`](Self::refuse_unprotected).
    pub fn refuse_unprotected_calls(&self) -> Result<(), ConfigError> {
        if let Some((key, now)) = self
            .names()
            .find_map(|name| Some((name, now_called(name)?)))
        {
            return Err(ConfigError::Renamed {
                key: key.to_owned(),
                place: self.origin(key).to_string(),
                now,
            });
        }
        let authentication = self.get(&keys::SECURITY_AUTHENTICATION);
        let authentication = if authentication.is_empty() {
            "simple"
        } else {
            &authentication
        };
        let other = !authentication.eq_ignore_ascii_case("simple") && !self.has_kerberos();
        let what = "an authentication other than simple and kerberos";
        let demanded = other.then_some(Unserved::of(keys::SECURITY_AUTHENTICATION.name(), what));
        self.refuse_unserved(demanded.or_else(|| self.unserved_transfer_protection()))
    }

    fn refuse_unserved(&self, demanded: Option<Unserved>) -> Result<(), ConfigError> {
        match demanded {
            Some(Unserved { key, what, instead }) => Err(ConfigError::Unprotected {
                key,
                value: self.text(key).unwrap_or_default(),
                place: self.origin(key).to_string(),
                what,
                instead,
            }),
            None => Ok(()),
        }
    }
}

/// What a key of parity is called now, by the name that it had before.
fn now_called(name: &str) -> Option<String> {
    let rest = name.strip_prefix("hayloft.pool.parity")?;
    Some(format!("{}{rest}", keys::PARITY.name()))
}

/// A key that only nodes read, and this one does not know: most likely misspelt.
fn is_unknown(name: &str) -> bool {
    let ours = name.starts_with("dfs.datanode.") || name.starts_with("hayloft.");
    ours && OfVolumes::of(name).is_none()
        && keys::find(name).is_none()
        && !unsupported::all().any(|entry| entry.name == name)
}

/// The known key that is at most three edits away.
fn nearest(name: &str) -> Option<&'static str> {
    let known = keys::all()
        .map(|key| key.name)
        .chain(unsupported::all().map(|entry| entry.name));
    known
        .map(|key| (distance(name, key), key))
        .filter(|(edits, _)| *edits <= 3)
        .min()
        .map(|(_, key)| key)
}

/// Levenshtein distance, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().map(|c| c.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().map(|c| c.to_ascii_lowercase()).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(properties: &[(&str, &str)]) -> Configuration {
        Configuration::from_properties(properties.iter().copied()).expect("valid properties")
    }

    #[test]
    fn keys_without_effect_are_named_only_when_they_ask_for_something() {
        let quiet = config(&[
            ("dfs.datanode.pmem.cache.recovery", "true"),
            ("dfs.heartbeat.interval", "5"),
        ]);
        assert_eq!(quiet.warnings(), Vec::<String>::new());
        let asked = config(&[("dfs.datanode.pmem.cache.dirs", "/pmem")]).warnings();
        assert_eq!(asked.len(), 1);
        assert!(asked[0].contains("dfs.datanode.pmem.cache.dirs") && asked[0].contains("cache"));
    }

    #[test]
    fn switched_off_is_what_it_is_anyway() {
        let off = config(&[("dfs.datanode.sync.behind.writes.in.background", "true")]);
        assert_eq!(off.warnings(), Vec::<String>::new());
    }

    #[test]
    fn shares_that_are_no_volumes_are_answered_by_name() {
        let lines = config(&[
            ("dfs.datanode.data.dir", "/d1,[ARCHIVE]/d1/archive"),
            (
                "dfs.datanode.same-disk-tiering.capacity-ratio.percentage",
                "[0.3]file:///d1/archive,[0.7]/d1,[0.5]file:///d2",
            ),
        ])
        .warnings();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("[0.7]/d1 has no effect") && lines[0].contains("file: URI"));
        assert!(lines[1].contains("[0.5]/d2 has no effect") && lines[1].contains("data.dir"));
    }

    #[test]
    fn a_ram_disk_is_answered_by_name() {
        let lines = config(&[("dfs.datanode.data.dir", "/a,[RAM_DISK]/b,[SSD]/c")]).warnings();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("[RAM_DISK]/b:") && lines[0].contains("to DISK at once"),
            "{}",
            lines[0]
        );
        assert!(lines[1].contains("volumes.tolerated to 1"), "{}", lines[1]);
        let dirs = ("dfs.datanode.data.dir", "/a,[RAM_DISK]/b");
        let memory = ("dfs.datanode.max.locked.memory", "65536");
        let more = ("dfs.datanode.failed.volumes.tolerated", "1");
        let lines = config(&[dirs, memory, more]).warnings();
        assert!(lines.is_empty(), "{lines:?}");
        let lines = config(&[("dfs.datanode.data.dir", "/a"), memory]).warnings();
        assert!(lines.is_empty(), "{lines:?}");
    }

    #[test]
    fn keys_of_the_rpc_server_are_answered_for_the_own_port_only() {
        let lines = config(&[
            ("dfs.datanode.ipc.address", "0.0.0.0:9999"),
            (
                "ipc.9999.callqueue.impl",
                "org.apache.hadoop.ipc.FairCallQueue",
            ),
            (
                "ipc.8020.callqueue.impl",
                "org.apache.hadoop.ipc.FairCallQueue",
            ),
            ("hadoop.security.group.mapping.ldap.url", "ldap://directory"),
            ("ipc.server.tcpnodelay", "true"),
        ])
        .warnings();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("group.mapping.ldap.url") && lines[0].contains("system's users"));
        assert!(lines[1].contains("ipc.9999.callqueue.impl"));
    }

    #[test]
    fn keys_of_no_volume_are_answered_by_name() {
        let lines = config(&[
            ("dfs.datanode.data.dir", "[SSD]file:///data/1,/data/2"),
            ("hayloft.io.engine./data/1", "posix"),
            ("hayloft.io.engine./data/1.ssd", "posix"),
            ("hayloft.io.engine./data/1/", "posix"),
            ("dfs.datanode.du.reserved./data/2", "1g"),
            ("dfs.datanode.du.reserved./data/1.ssd", "1g"),
            ("dfs.datanode.du.reserved.pct./data/1", "1"),
            ("dfs.datanode.du.reserved./data/3", "1g"),
        ])
        .warnings();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("du.reserved./data/3"), "{}", lines[0]);
        assert!(
            lines[1].contains("engine./data/1.ssd (command line) has no effect"),
            "{}",
            lines[1]
        );
        assert!(
            lines[2].contains("engine./data/1/ (command line) has no effect"),
            "{}",
            lines[2]
        );
    }

    #[test]
    fn misspelt_keys_get_a_hint() {
        let lines = config(&[
            ("dfs.datanode.data.dirs", "/x"),
            ("dfs.datanode.du.reserved.ssd", "1g"),
        ])
        .warnings();
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains("did you mean dfs.datanode.data.dir?"),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn a_key_of_before_is_refused_with_its_name_of_now() {
        for (key, now) in [
            ("hayloft.pool.parity", "hayloft.parity"),
            ("hayloft.pool.parity.disks", "hayloft.parity.disks"),
        ] {
            let refused = config(&[(key, "6+1")]).refuse_unprotected();
            let told = format!(
                "{key} (command line) is called {now} now: rename it, or the node would run \
                 without the parity that it asks for"
            );
            assert_eq!(refused.unwrap_err().to_string(), told);
        }
        let now = config(&[("hayloft.parity", "6+1")]);
        assert!(now.refuse_unprotected().is_ok() && now.warnings().is_empty());
    }

    #[test]
    fn demanded_protection_refuses_to_start() {
        let error = config(&[("hadoop.security.authentication", "token")])
            .refuse_unprotected()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("hadoop.security.authentication") && error.contains("token"),
            "{error}"
        );
        assert!(
            config(&[("hadoop.security.authentication", "simple")])
                .refuse_unprotected()
                .is_ok()
        );
    }
}
