//! What a description may not say, in words.

use std::collections::BTreeSet;

use super::{
    DISKS_PER_NODE_MAX, DataNodeSpec, Description, HOSTS_MAX, HostSpec, MORE_LINKS_MAX, NAME_MAX,
    NODES_PER_HOST_MAX, WorkloadSpec,
};

impl Description {
    /// Whether it can be made; else what to change.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        check_name("the testbed", &self.name)?;
        let hosts = self.hosts().count();
        if hosts == 0 || hosts > HOSTS_MAX {
            return Err(format!(
                "{hosts} hosts: between 1 and {HOSTS_MAX} can be made"
            ));
        }
        let mut racks = BTreeSet::new();
        for rack in &self.racks {
            check_name("a rack", &rack.name)?;
            if !racks.insert(&rack.name) {
                return Err(format!("rack {} is described twice", rack.name));
            }
        }
        let mut names = BTreeSet::new();
        for (_, host) in self.hosts() {
            check_name("a host", &host.name)?;
            if !names.insert(&host.name) {
                return Err(format!("host {} is described twice", host.name));
            }
            check_host(host)?;
        }
        self.check_mapped(&names)?;
        const PLACEMENTS: [&str; 5] = ["stock", "split", "round-robin", "hybrid", "random"];
        let placement = self.namenode.placement.as_str();
        if !PLACEMENTS.contains(&placement) {
            return Err(format!(
                "namenode.placement = \"{placement}\": choose one of {}",
                PLACEMENTS.join(", ")
            ));
        }
        check_rate("network.link_mbit", self.network.link_mbit)?;
        if self.network.uplink_mbit > 0 {
            check_rate("network.uplink_mbit", self.network.uplink_mbit)?;
        }
        self.workload.check()
    }

    fn check_mapped(&self, names: &BTreeSet<&String>) -> std::result::Result<(), String> {
        for (_, host) in self.hosts() {
            for disk in host.nodes.iter().flat_map(|node| &node.disks) {
                let Some(on) = &disk.on else { continue };
                if !disk.modelled || on == &host.name || !names.contains(on) {
                    return Err(format!(
                        "a disk of host {} is on = \"{on}\": that must be another host of the \
                            testbed, and the disk a modelled one",
                        host.name
                    ));
                }
            }
        }
        Ok(())
    }
}

impl WorkloadSpec {
    fn check(&self) -> std::result::Result<(), String> {
        if !["own", "other", "both", "none"].contains(&self.read.as_str()) {
            return Err(format!(
                "workload.read = \"{}\": choose own, other, both or none",
                self.read
            ));
        }
        let in_range = |what: &str, value: usize, max: usize| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(format!("workload.{what} = {value}: between 1 and {max}"))
            }
        };
        in_range("streams", self.streams, 64)?;
        in_range("rounds", self.rounds, 100)?;
        in_range("mib", self.mib as usize, 1 << 16)?;
        in_range("block_mib", self.block_mib as usize, 2047)?;
        in_range("replication", usize::from(self.replication), 64)
    }
}

fn check_rate(what: &str, mbit: u32) -> std::result::Result<(), String> {
    if (1..=100_000).contains(&mbit) {
        Ok(())
    } else {
        Err(format!("{what} = {mbit}: between 1 and 100000 Mbit/s"))
    }
}

fn check_name(whose: &str, name: &str) -> std::result::Result<(), String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(good) {
        Ok(())
    } else {
        Err(format!(
            "\"{name}\" cannot be the name of {whose}: 1 to {NAME_MAX} small letters and digits"
        ))
    }
}

fn check_host(host: &HostSpec) -> std::result::Result<(), String> {
    if let Some(mbit) = host.link_mbit {
        check_rate(&format!("link_mbit of host {}", host.name), mbit)?;
    }
    if host.nodes.len() > NODES_PER_HOST_MAX {
        return Err(format!(
            "host {} has {} nodes, at most {NODES_PER_HOST_MAX} can be made",
            host.name,
            host.nodes.len()
        ));
    }
    if host.more_links > MORE_LINKS_MAX {
        return Err(format!(
            "more_links of host {} is {}: at most {MORE_LINKS_MAX}",
            host.name, host.more_links
        ));
    }
    for node in &host.nodes {
        check_virtual(host, node)?;
        if !["hayloft", "apache", "apache-behind"].contains(&node.kind.as_str()) {
            return Err(format!(
                "kind = \"{}\" of a node of host {}: choose hayloft, apache or \
                    apache-behind",
                node.kind, host.name
            ));
        }
        if node.disks.is_empty() || node.disks.len() > DISKS_PER_NODE_MAX {
            return Err(format!(
                "a node of host {} has {} disks: between 1 and {DISKS_PER_NODE_MAX}",
                host.name,
                node.disks.len()
            ));
        }
        for disk in &node.disks {
            if disk.modelled && disk.memory {
                return Err(format!(
                    "a disk of host {} is both modelled and memory: choose one",
                    host.name
                ));
            }
            let numbers = [disk.read_mbs, disk.write_mbs, disk.seek_percent];
            if !(64..=1 << 20).contains(&disk.size_mib)
                || numbers.iter().any(|n| !(1..=10_000).contains(n))
            {
                return Err(format!(
                    "a disk of host {}: size_mib is between 64 and 1048576, read_mbs, write_mbs \
                        and seek_percent between 1 and 10000",
                    host.name
                ));
            }
        }
    }
    Ok(())
}

fn check_virtual(host: &HostSpec, node: &DataNodeSpec) -> std::result::Result<(), String> {
    let names = &node.virtual_nodes;
    names
        .iter()
        .try_for_each(|name| check_name("a virtual node", name))?;
    let different = names.iter().collect::<BTreeSet<_>>().len();
    if names.len() > NODES_PER_HOST_MAX || different < names.len() {
        return Err(format!(
            "virtual_nodes of host {}: at most {NODES_PER_HOST_MAX}, each with a name of its own",
            host.name
        ));
    }
    if !names.is_empty() && host.nodes.len() > 1 {
        return Err(format!(
            "host {} has virtual nodes and other nodes: leave one of them out",
            host.name
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::SMALL;
    use super::*;

    #[test]
    fn mistakes_are_named() {
        for (wrong, right, says) in [
            ("name = \"s1\"", "name = \"S1\"", "small letters"),
            ("name = \"c1\"", "name = \"s1\"", "described twice"),
            (
                "\"apache\"",
                "\"other\"",
                "hayloft, apache or apache-behind",
            ),
            ("\"split\"", "\"best\"", "choose one of"),
            ("link_mbit = 200", "link_mbit = 0", "between 1 and"),
            ("mib = 64", "mib = 64\nspeed = 3", "unknown field"),
            ("\"other\"\n", "\"all\"\n", "own, other, both or none"),
            ("size_mib = 512", "size_mib = 5", "size_mib"),
            ("size_mib = 512", "memory = true", "choose one"),
            (
                "kind =",
                "virtual_nodes = [\"a\", \"a\"]\nkind =",
                "of its own",
            ),
            ("kind =", "virtual_nodes = [\"A\"]\nkind =", "small letters"),
            (
                "name = \"s1\"",
                "name = \"s1\"\nmore_links = 8",
                "at most 7",
            ),
            ("size_mib = 512", "on = \"s1\"", "another host"),
            ("size_mib = 512", "on = \"s9\"", "another host"),
        ] {
            let text = SMALL.replacen(wrong, right, 1);
            let error = Description::parse(&text).expect_err(right).to_string();
            assert!(error.contains(says), "{right}: {error}");
        }
    }
}
