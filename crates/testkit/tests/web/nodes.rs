//! Web ports of a cluster's nodes, and what is asked of them.

use crate::exchange::Reply;
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::expect_eq;
use hayloft_testkit::{Cluster, ports};
use std::net::SocketAddr;

/// The web port of a node.
pub fn web_of(cluster: &mut Cluster, node: usize) -> SocketAddr {
    ports::local(cluster.node(node).http_port())
}

/// What is asked of WebHDFS, as root unless the parameters have a user.
pub fn webhdfs(cluster: &mut Cluster, path: &str, parameters: &str) -> String {
    let namenode = cluster.namenode(0).rpc();
    let user = if parameters.contains("user.name") {
        ""
    } else {
        "&user.name=root"
    };
    format!("/webhdfs/v1{path}?{parameters}&namenoderpcaddress={namenode}{user}")
}

/// The same of two nodes.
pub fn both<T>(
    cluster: &mut Cluster,
    nodes: [usize; 2],
    ask: impl Fn(SocketAddr) -> Result<T>,
) -> Result<[T; 2]> {
    let [first, second] = nodes.map(|node| ask(web_of(cluster, node)));
    Ok([first?, second?])
}

/// The answer is this one, and no error.
pub fn expect_done(what: &str, reply: &Reply, code: u16) -> Result<()> {
    expect_eq(
        what,
        (reply.code, reply.error()),
        (code, Default::default()),
    )
}
