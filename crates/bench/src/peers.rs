//! Who is compared.

use super::rows::BenchWorkload;
use hayloft_io::{describe_plugin, plugin_parts};
use hayloft_testkit::conf::Conf;
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::node::Kind;

/// A node that takes part, in one or three copies.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name in tables: `stock`, or that of a Hayloft engine.
    pub name: String,
    /// Whose.
    pub kind: Kind,
    /// Configuration of its own.
    pub conf: Conf,
    /// Whether it keeps no data, so that only writes make sense.
    pub drops_data: bool,
}

impl Peer {
    /// Whether the row says something about it: `stock-drop` reads as `stock` does.
    #[must_use]
    pub fn takes_part(&self, workload: BenchWorkload) -> bool {
        match self.name.as_str() {
            STOCK_DROP => workload.settles(),
            _ => !self.drops_data || workload.writes_only(),
        }
    }
}

/// The stock DataNode as its documentation advises for throughput.
pub const STOCK: &str = "stock";
/// The stock DataNode that writes its data out while it comes: the fair baseline of what is written
/// until it is on the device.
pub const STOCK_DROP: &str = "stock-drop";
/// The engine that Hayloft has without another wish.
pub const DEFAULT: &str = "direct";
/// An earlier version of Hayloft, by its binary.
pub const BEFORE: &str = "before";
/// Hayloft as [`DEFAULT`], with an agent that scrapes it and its page open.
pub const SCRAPED: &str = "scraped";
/// The engine that drops what it is given: our own overhead alone.
pub const NULL: &str = "null";

/// Every peer by name: the stock DataNode twice, and Hayloft with each registered engine.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let engines = hayloft_io::ENGINE_NAMES.into_iter();
    [STOCK, STOCK_DROP].into_iter().chain(engines).collect()
}

/// Whether it is a stock DataNode.
#[must_use]
pub fn is_stock(name: &str) -> bool {
    [STOCK, STOCK_DROP].contains(&name)
}

/// The name of a peer in tables: of a plug-in, `plugin-` and its file's name.
#[must_use]
pub fn shown(name: &str) -> String {
    let Some((path, _)) = plugin_parts(name) else {
        return name.to_owned();
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    format!("plugin-{}", stem.trim_start_matches("lib"))
}

/// The peer of that name, [`BEFORE`], [`SCRAPED`] and plug-ins included; `define` goes into the
/// configuration of Hayloft's nodes.
///
/// # Errors
/// [`TestkitError::Talk`] listing the known names.
pub fn peer(name: &str, define: &[(String, String)]) -> Result<Peer> {
    let plugin = plugin_parts(name);
    let is_known = [BEFORE, SCRAPED].contains(&name) || names().contains(&name);
    if plugin.is_none() && !is_known {
        let known = names().join(", ");
        let problem = format!("no peer is named {name:?}; known are {known}");
        return Err(TestkitError::Talk(problem));
    }
    let mut conf = Conf::new();
    let kind = match name {
        STOCK => Kind::Apache,
        STOCK_DROP => {
            conf.set("dfs.datanode.drop.cache.behind.writes", true)
                .set("dfs.datanode.sync.behind.writes", true);
            Kind::Apache
        }
        engine => {
            match engine {
                BEFORE => {}
                SCRAPED => {
                    conf.set("hayloft.io.engine", DEFAULT);
                }
                _ => {
                    conf.set("hayloft.io.engine", engine);
                }
            }
            for (key, value) in define {
                conf.set(key, value);
            }
            Kind::Hayloft
        }
    };
    if kind == Kind::Apache {
        conf.set("io.file.buffer.size", 128 << 10)
            .set("dfs.datanode.readahead.bytes", 4 << 20);
    }
    let drops_data = match plugin {
        Some((path, _)) => {
            let described = describe_plugin(path);
            !described
                .map_err(|e| TestkitError::Talk(e.to_string()))?
                .keeps_data
        }
        None => name == NULL,
    };
    Ok(Peer {
        name: shown(name),
        kind,
        conf,
        drops_data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_a_peer() {
        for name in names() {
            assert_eq!(peer(name, &[]).expect("known").name, name);
        }
        let scraped = peer(SCRAPED, &[]).expect("known");
        let engine = scraped.conf.iter().next();
        assert_eq!(engine.map(|(_, value)| value), Some(DEFAULT));
        assert_eq!(shown("plugin:/a/libnull_plugin.so x"), "plugin-null_plugin");
        let error = peer("fast", &[]).expect_err("unknown").to_string();
        assert!(error.contains("posix"), "{error}");
    }
}
