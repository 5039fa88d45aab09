//! Who is compared.

use super::fair::stock::{Medium, Stock, is_stock, ours};
use super::rows::BenchWorkload;
use hayloft_io::{describe_plugin, plugin_parts};
use hayloft_testkit::error::{Result, TestkitError};
use hayloft_testkit::hadoop_conf::Conf;
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
    /// Whether the row says something about it.
    #[must_use]
    pub fn takes_part(&self, workload: BenchWorkload) -> bool {
        // A stock node reads the same with every setting.
        if is_stock(&self.name) && self.name != STOCK {
            let moves = matches!(workload, BenchWorkload::DiskBalancer(_));
            return workload.settles() && !moves;
        }
        !self.drops_data || workload.writes_only()
    }
}

/// The stock DataNode as its documentation advises for throughput.
pub const STOCK: &str = Stock::Plain.name();
/// The engine that Hayloft has without another wish.
pub const DEFAULT: &str = "direct";
/// An earlier version of Hayloft, by its binary.
pub const BEFORE: &str = "before";
/// Hayloft as [`DEFAULT`], with an agent that scrapes it and its page open.
pub const SCRAPED: &str = "scraped";
/// The engine that drops what it is given: our own overhead alone.
pub const NULL: &str = "null";

/// Every peer by name: the stock DataNode with the settings that are best on this medium, and
/// Hayloft with each registered engine.
#[must_use]
pub fn names_on(medium: Medium) -> Vec<&'static str> {
    let settings = Stock::ALL.into_iter().filter(|stock| {
        let plain = Stock::at_best(medium, false).contains(stock);
        plain || medium == Medium::Rotating && Stock::at_best(medium, true).contains(stock)
    });
    let engines = hayloft_io::ENGINE_NAMES.into_iter();
    settings.map(Stock::name).chain(engines).collect()
}

/// Those on the machine's own disk.
#[must_use]
pub fn names() -> Vec<&'static str> {
    names_on(Medium::Own)
}

/// The stock node's setting of that name.
fn setting(name: &str) -> Option<Stock> {
    Stock::ALL.into_iter().find(|stock| stock.name() == name)
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
    let known = names_on(Medium::Rotating);
    let is_known = [BEFORE, SCRAPED].contains(&name) || known.contains(&name);
    if plugin.is_none() && !is_known {
        let known = known.join(", ");
        let problem = format!("no peer is named {name:?}; known are {known}");
        return Err(TestkitError::Talk(problem));
    }
    let (kind, conf) = match setting(name) {
        Some(stock) => (Kind::Apache, stock.conf()),
        None => {
            let mut conf = ours(Medium::Own, false);
            match name {
                BEFORE => {}
                SCRAPED => drop(conf.set("hayloft.io.engine", DEFAULT)),
                engine => drop(conf.set("hayloft.io.engine", engine)),
            }
            for (key, value) in define {
                conf.set(key, value);
            }
            (Kind::Hayloft, conf)
        }
    };
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
        for name in names_on(Medium::Rotating) {
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
