//! What a NameNode says of its own configuration: its page `/conf`.
//!
//! The files here may say something else than the NameNode's own. Where the page cannot be had (no
//! HTTP, or for administrators alone), they have to do.

use std::net::ToSocketAddrs as _;

use hayloft_cluster::http;
use hayloft_conf::{Configuration, HostPort, NameNodeAddr, NameService};

use super::age::{PRECISION_KEY, Precision};
use super::ask_namenode::choose;

/// Key of a NameNode's HTTP address, with the suffixes of its other addresses.
const HTTP_ADDRESS: &str = "dfs.namenode.http-address";
/// Its port by default.
const HTTP_PORT: u16 = 9870;

/// How the NameNodes of a name service keep access times, by the first of them that says so.
/// Blocking: a few seconds for each that does not answer.
pub fn precision(config: &Configuration, service: Option<&str>) -> Option<Precision> {
    let services = hayloft_conf::namenodes(config).ok()?;
    let service = choose(services, service).ok()?;
    let asked = |namenode: &NameNodeAddr| {
        let address = http_address(config, service.id.as_deref(), namenode)?;
        let mut found = (&*address.host, address.port).to_socket_addrs().ok()?;
        let path = format!("/conf?name={PRECISION_KEY}");
        let page = found.find_map(|address| http::get(address, &path).ok())?;
        let ms = value(&page)?;
        Some(match ms {
            0 => Precision::Off(format!("says the NameNode at {address}")),
            ms => Precision::Kept(ms),
        })
    };
    service.namenodes.iter().find_map(asked)
}

/// Where the pages of all NameNodes of a name service are.
pub fn http_addresses(config: &Configuration, service: &NameService) -> Vec<HostPort> {
    let id = service.id.as_deref();
    let all = service.namenodes.iter();
    all.filter_map(|one| http_address(config, id, one))
        .collect()
}

/// Where its pages are; the host of its RPC address where it listens on all.
fn http_address(
    config: &Configuration,
    service: Option<&str>,
    namenode: &NameNodeAddr,
) -> Option<HostPort> {
    let parts = [Some(HTTP_ADDRESS), service, namenode.nn_id.as_deref()];
    let name: Vec<&str> = parts.into_iter().flatten().collect();
    let text = config.text(&name.join("."));
    let text = text.or_else(|| config.text(HTTP_ADDRESS));
    let mut address = match text {
        Some(text) => HostPort::parse_with_default(&text, Some(HTTP_PORT)).ok()?,
        None => HostPort {
            host: String::new(),
            port: HTTP_PORT,
        },
    };
    if ["", "0.0.0.0", "::"].contains(&&*address.host) {
        address.host.clone_from(&namenode.rpc.host);
    }
    Some(address)
}

/// The number in an answer: XML of the one property, its name before its value.
fn value(page: &str) -> Option<u64> {
    let name = format!("<name>{PRECISION_KEY}</name>");
    let (_, rest) = page.split_once(&name)?;
    let (_, rest) = rest.split_once("<value>")?;
    let (value, _) = rest.split_once("</value>")?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_asked_where_the_namenode_is() {
        let address = |pairs: &[(&str, &str)]| {
            let config = Configuration::from_properties(pairs.iter().copied()).expect("valid");
            let services = hayloft_conf::namenodes(&config).expect("configured");
            let service = services.into_iter().next().expect("one");
            let namenode = &service.namenodes[0];
            let found = http_address(&config, service.id.as_deref(), namenode);
            found
                .map(|address| address.to_string())
                .expect("an address")
        };
        let one = ("fs.defaultFS", "hdfs://nn:8020");
        assert_eq!(address(&[one]), "nn:9870");
        assert_eq!(address(&[one, (HTTP_ADDRESS, "0.0.0.0:50070")]), "nn:50070");
        assert_eq!(address(&[one, (HTTP_ADDRESS, "web")]), "web:9870");
        let pair = [
            ("dfs.nameservices", "ns"),
            ("dfs.ha.namenodes.ns", "a"),
            ("dfs.namenode.rpc-address.ns.a", "h:8020"),
            ("dfs.namenode.http-address.ns.a", "h:1"),
        ];
        assert_eq!(address(&pair), "h:1");
    }

    #[test]
    fn only_the_answer_to_the_question_counts() {
        let page = |key: &str, value: &str| {
            format!(
                "<?xml version=\"1.0\"?><configuration><property><name>{key}</name>\
                 <value>{value}</value><final>false</final></property></configuration>"
            )
        };
        assert_eq!(value(&page(PRECISION_KEY, "0")), Some(0));
        assert_eq!(value(&page(PRECISION_KEY, " 3600000 ")), Some(3_600_000));
        for wrong in [
            &*page("other", "0"),
            &page(PRECISION_KEY, "off"),
            "",
            "<html>",
            "{}",
        ] {
            assert_eq!(value(wrong), None, "{wrong}");
        }
    }
}
