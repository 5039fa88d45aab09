//! FsShell on every kind of node.
use hayloft_lab::node::Kind;
use hayloft_lab::{Cluster, Suite};
use std::process::ExitCode;

fn main() -> ExitCode {
    Suite::run("shell", |_suite| {
        let cluster = Cluster::builder("shell")
            .nodes(3, Kind::under_test())
            .start()?;
        cluster.driver()?.fs(&["-ls", "/"])?;
        cluster.succeed();
        Ok(())
    })
}
