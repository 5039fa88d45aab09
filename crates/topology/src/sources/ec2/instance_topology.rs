//! `DescribeInstanceTopology` of EC2's API (version 2016-11-15), for one instance.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::Method;
use quick_xml::Reader;
use quick_xml::events::Event;
use rustls::RootCertStore;
use time::OffsetDateTime;

use crate::http::{BaseUrl, HttpAsker, Question};
use crate::name::SafeName;

use super::sign::{Credentials, SignedCall, authorization, stamp};

/// Asks for the network node next to the instance.
///
/// # Errors
/// Says what the API refused, or that it does not know this type of instance.
pub(super) fn ask(
    http: &HttpAsker,
    endpoint: &BaseUrl,
    region: &SafeName,
    instance: &SafeName,
    credentials: &Credentials,
) -> Result<String, String> {
    if !endpoint.keeps_secrets() {
        return Err(format!("{endpoint}: a signed call goes over https only"));
    }
    let query =
        format!("Action=DescribeInstanceTopology&InstanceId.1={instance}&Version=2016-11-15");
    let stamp = stamp(OffsetDateTime::from(SystemTime::now()));
    let host = endpoint.authority();
    let headers = [
        ("host", host.as_str()),
        ("x-amz-date", stamp.as_str()),
        ("x-amz-security-token", credentials.token.as_str()),
    ];
    let call = SignedCall {
        region: region.as_str(),
        service: "ec2",
        query: &query,
        headers: &headers,
    };
    let authorization = authorization(&call, credentials, &stamp);
    let reply = http.ask(&Question {
        method: Method::GET,
        at: endpoint,
        path: &format!("/?{query}"),
        // The client itself says the host.
        headers: &[headers[1], headers[2], ("authorization", &authorization)],
        roots: Some(system_roots()),
    })?;
    if reply.status != 200 {
        let code = texts(&reply.body, &["Code"]).into_iter().next();
        let code: String = code.unwrap_or_default().chars().take(80).collect();
        let refusal = reply.refusal();
        return Err(format!("DescribeInstanceTopology {refusal} {code}"));
    }
    node_of(&reply.body, instance.as_str())
}

/// The certificates that this system trusts.
fn system_roots() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
}

/// The last node of the set, for the instance that was asked about.
fn node_of(xml: &str, instance: &str) -> Result<String, String> {
    let item = ["DescribeInstanceTopologyResponse", "instanceSet", "item"];
    let path = |last: &[&'static str]| [&item[..], last].concat();
    let instances = texts(xml, &path(&["instanceId"]));
    match instances.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [one] if one == instance => {}
        [] => return Err("DescribeInstanceTopology knows nothing of this instance".to_owned()),
        _ => return Err("DescribeInstanceTopology answered about another instance".to_owned()),
    }
    let nodes = texts(xml, &path(&["networkNodeSet", "item"]));
    let last = nodes.into_iter().next_back();
    last.ok_or("DescribeInstanceTopology has no network nodes for this type".to_owned())
}

/// The texts of all elements whose path ends with these names. Garbage has none.
fn texts(xml: &str, path: &[&str]) -> Vec<String> {
    let mut reader = Reader::from_str(xml);
    let (mut open, mut found) = (Vec::new(), Vec::new());
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => {
                open.push(tag.local_name().as_ref().to_owned());
                if open.len() > 64 {
                    return Vec::new();
                }
            }
            Ok(Event::End(_)) => drop(open.pop()),
            Ok(Event::Text(text)) => {
                let names: Vec<&str> = open.iter().map(String::as_str).collect();
                let text = text.xml10_content();
                if names.ends_with(path) && !text.trim().is_empty() {
                    found.push(text.trim().to_owned());
                }
            }
            Ok(Event::Eof) => return found,
            Ok(_) => {}
            Err(_) => return Vec::new(),
        }
    }
}
