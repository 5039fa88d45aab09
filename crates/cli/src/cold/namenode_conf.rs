//! What a NameNode says of its own configuration: its page `/conf`.
//!
//! The files here may say something else than the NameNode's own. Where the page cannot be had (no
//! HTTP, or for administrators alone), they have to do.

use std::net::ToSocketAddrs as _;

use hayloft_cluster::http;
use hayloft_conf::{Configuration, NameNodeAddr, namenode_web_address};

use super::age::{PRECISION_KEY, Precision};
use super::ask_namenode::choose;

/// How the NameNodes of a name service keep access times, by the first of them that says so.
/// Blocking: a few seconds for each that does not answer.
pub fn precision(config: &Configuration, service: Option<&str>) -> Option<Precision> {
    let services = hayloft_conf::namenodes(config).ok()?;
    let service = choose(services, service).ok()?;
    let asked = |namenode: &NameNodeAddr| {
        let address = namenode_web_address(config, service.id.as_deref(), namenode)?;
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
