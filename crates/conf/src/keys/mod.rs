//! Every key that a node reads: name, type, unit, default, bounds and doc, declared once.
//!
//! - `namenode`: towards NameNodes: names, heartbeats, reports
//! - `storage`: volumes: directories, space, choice, failure, scanners
//! - `security`: who is who: Kerberos, names, and what protects RPC
//! - `system`: identity, addresses, demanded protection and what belongs to the process
//! - `transfer`: data transfer: limits, timeouts, throttles, page cache, pipeline, recovery
//! - `web`: the web port: WebHDFS, and who may use it
//!
//! Names and defaults are those of Apache Hadoop 3.5.0; keys of our own begin with `hayloft.`.

mod namenode;
mod security;
mod snapshot;
mod storage;
mod system;
mod transfer;
mod web;

pub use namenode::*;
pub use security::*;
pub use snapshot::*;
pub use storage::*;
pub use system::*;
pub use transfer::*;
pub use web::*;

use super::key::AnyKey;

/// Declares keys as statics, and lists them in `TABLE`.
macro_rules! keys {
    ($(
        $ident:ident: $type:ty = ($name:literal, $default:literal, $doc:literal)
            $(.$option:ident($($argument:expr),*))*;
    )*) => {
        $(
            #[doc = concat!("`", $name, "`, default `", $default, "`: ", $doc)]
            pub static $ident: $crate::Key<$type> =
                $crate::Key::new($name, $default, $doc)$(.$option($($argument),*))*;
        )*
        /// Keys of this file.
        pub(super) static TABLE: &[&$crate::AnyKey] = &[$(&$ident.info),*];
    };
}
pub(crate) use keys;

/// Every key, grouped by subject.
pub fn all() -> impl Iterator<Item = &'static AnyKey> {
    subjects()
        .into_iter()
        .flat_map(|(_, table)| table.iter().copied())
}

/// The tables of keys with their headings.
pub(super) fn subjects() -> [(&'static str, &'static [&'static AnyKey]); 7] {
    [
        ("Process, ports and security", system::TABLE),
        ("Kerberos", security::TABLE),
        ("NameNodes and reports", namenode::TABLE),
        ("Data transfer", transfer::TABLE),
        ("Volumes", storage::TABLE),
        ("Web port", web::TABLE),
        ("Snapshots", snapshot::TABLE),
    ]
}

/// The key of that name or deprecated alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static AnyKey> {
    all().find(|key| key.name == name || key.aliases.contains(&name))
}

/// Names of the keys that may change while the node runs: the list that
/// `dfsadmin -reconfig datanode <host> properties` prints.
pub fn reconfigurable() -> impl Iterator<Item = &'static str> {
    all().filter(|key| key.reconfigurable).map(|key| key.name)
}
