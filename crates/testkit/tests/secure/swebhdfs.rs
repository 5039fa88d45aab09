//! WebHDFS over HTTPS alone, with delegation tokens: stock clients, and callers whose tokens are
//! not good. Nodes of ours and a stock one refuse with the same codes and exceptions.

use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop::{Jvm, class};
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::tls_stores::TlsStores;
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError, ports};
use serde_json::json;
use std::path::{Path, PathBuf};

use crate::by_curl::{NodeByCurl, bytes};
use crate::web_tokens::{
    DENIED, INVALID, asked_with_ticket, forged, gives_tokens, new_token, refusal,
};
use crate::{BLOCK, encrypted, over_https, realm};

/// Nodes of ours; one of Apache's comes behind them.
const OURS: usize = 2;
const BYTES: u64 = 2 * BLOCK + 9;
const FETCH: &str = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher";

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(
        || Web::start(&[]),
        |lab, failed| lab.cluster.conclude(failed),
    );
    on.case("swebhdfs_by_stock_clients_with_tickets", |lab| {
        lab.with_tickets()
    });
    on.case("swebhdfs_by_stock_clients_with_a_token_alone", |lab| {
        lab.with_a_token()
    });
    on.case("swebhdfs_tokens_write_and_read_at_each_node", |lab| {
        lab.each_node()
    });
    on.case("swebhdfs_refuses_tokens_that_are_not_good", |lab| {
        lab.refused()
    });
    let mut on = suite.group(
        || Web::start(&[("dfs.namenode.delegation.token.renew-interval", "6000")]),
        |lab, failed| lab.cluster.conclude(failed),
    );
    on.case("swebhdfs_refuses_a_token_that_ran_out", |lab| lab.ran_out());
}

struct Web {
    cluster: Cluster,
    fs: Driver,
    stores: TlsStores,
    /// The web port of each node.
    ports: Vec<u16>,
    /// Of the NameNode, over TLS.
    namenode: String,
    _realm: Realm,
}

impl Web {
    fn start(more: &[(&str, &str)]) -> Result<Self> {
        let realm = realm()?;
        let (builder, stores) = encrypted(&realm)?;
        let namenode = format!("localhost:{}", ports::free()?);
        let mut builder = gives_tokens(&realm, builder)?
            .conf("dfs.http.policy", "HTTP_AND_HTTPS")
            .conf("dfs.namenode.https-address", &namenode);
        for (name, value) in more {
            builder = builder.conf(name, value);
        }
        let mut ports = Vec::new();
        for node in 0..=OURS {
            let kind = if node < OURS {
                Kind::Hayloft
            } else {
                Kind::Apache
            };
            let (spec, port) = over_https(kind)?;
            builder = builder.node(spec);
            ports.push(port);
        }
        let cluster = builder.start()?;
        let fs = cluster.driver()?;
        Ok(Self {
            cluster,
            fs,
            stores,
            ports,
            namenode,
            _realm: realm,
        })
    }

    fn new_token(&self) -> Result<String> {
        let certificate = self.stores.certificate().display().to_string();
        let trusting = ["--cacert", certificate.as_str()];
        new_token(&format!("https://{}", self.namenode), &trusting)
    }

    /// A node, asked by a caller with these parameters.
    fn node(&mut self, node: usize, caller: &str) -> NodeByCurl {
        let (port, certificate) = (self.ports[node], self.stores.certificate());
        NodeByCurl::new(&mut self.cluster, node, caller).over_tls(port, &certificate)
    }

    /// A file to send, and where it comes back.
    fn local(&self) -> Result<(PathBuf, PathBuf, Vec<u8>)> {
        let [file, back] = ["sent", "received"].map(|name| self.cluster.dir().join(name));
        let data = bytes(3, 0, BYTES);
        std::fs::write(&file, &data).map_err(TestkitError::file("writing", &file))?;
        Ok((file, back, data))
    }

    fn with_tickets(&mut self) -> Result<Outcome> {
        let (file, back, data) = self.local()?;
        let (sent, received) = (file.display().to_string(), back.display().to_string());
        // The NameNode sends each of them to a node that it chooses.
        for number in 0..6 {
            let path = format!("/by-ticket-{number}");
            let over_web = format!("swebhdfs://{}{path}", self.namenode);
            self.fs.fs(&["-put", "-f", &sent, &over_web])?;
            self.fs.check(&path, BYTES, 3)?;
            self.fs.fs(&["-get", "-f", &over_web, &received])?;
            came_back(&back, &data)?;
        }
        passed()
    }

    /// Whether a stock program in a JVM of its own does it; with these variables.
    fn stock(&self, main: &str, args: &[&str], set: &[(&str, &str)]) -> Result<bool> {
        let (conf, dir) = (self.cluster.client_conf_dir(), self.cluster.dir());
        let jvm = Jvm::small(&conf, dir, 256);
        let mut spawn = self.cluster.hadoop().java("client", &jvm, main, args);
        let set = set
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        spawn.env.extend(set);
        Ok(spawn.start()?.wait(seconds(300))?.success())
    }

    fn with_a_token(&mut self) -> Result<Outcome> {
        let (file, back, data) = self.local()?;
        let token = self.cluster.dir().join("token").display().to_string();
        let web = format!("swebhdfs://{}", self.namenode);
        let fetch = ["--webservice", &web, "--renewer", "hdfs", &token];
        let fetched = self.stock(FETCH, &fetch, &[])?;
        expect(fetched, || "no token was fetched".into())?;
        // Without a ticket from here on.
        let without = [("KRB5CCNAME", "FILE:/no-such-cache")];
        let by_token = [without[0], ("HADOOP_TOKEN_FILE_LOCATION", token.as_str())];
        let shell = |args: &[&str], set: &[_]| self.stock(class::FS_SHELL, args, set);
        let (sent, received) = (file.display().to_string(), back.display().to_string());
        let path = format!("{web}/by-token");
        let put = ["-put", "-f", &sent, &path];
        let alone = shell(&put, &without)?;
        expect(!alone, || "it wrote without ticket and token".into())?;
        for number in 0..3 {
            let path = format!("{web}/by-token-{number}");
            let put = ["-put", "-f", &sent, &path];
            let written = shell(&put, &by_token)?;
            expect(written, || format!("{path} was not written"))?;
            self.fs.check(&format!("/by-token-{number}"), BYTES, 3)?;
            let get = ["-get", "-f", &path, &received];
            let read = shell(&get, &by_token)?;
            expect(read, || format!("{path} was not read"))?;
            came_back(&back, &data)?;
        }
        passed()
    }

    fn each_node(&mut self) -> Result<Outcome> {
        let token = self.new_token()?;
        for node in 0..=OURS {
            let asked = self.node(node, &format!("delegation={token}"));
            asked.works(&self.fs, &format!("/at-node-{node}"), BLOCK)?;
            asked.reads_open(&self.fs, &format!("/open-at-node-{node}"), BLOCK)?;
        }
        for node in 0..OURS {
            let log = self.cluster.node(node).log();
            let text = std::fs::read_to_string(&log);
            let text = text.map_err(TestkitError::file("reading", &log))?;
            expect(!text.contains(&token), || format!("{log:?} has a token"))?;
        }
        passed()
    }

    /// Codes of ours are those of the stock node, and a refusal. Behind no token its exception is
    /// that of its own RPC.
    fn same(&mut self, what: &str, caller: &str) -> Result<String> {
        let mut told = Vec::new();
        for node in [0, OURS] {
            let asked = self.node(node, caller);
            told.push(refusal(&asked.get("/refused", "OPEN")?));
            let sent = asked.send("PUT", "/refused-2", "CREATE", b"bytes")?;
            told.push(refusal(&sent));
        }
        println!("secure: {what}: {told:?}");
        let (code, class) = told[0].clone();
        expect_eq(what, code.as_str(), "403")?;
        let all = told.iter().all(|(code, _)| code == "403");
        expect(all && told[0] == told[1], || format!("{told:?}"))?;
        let listed = self.fs.fs(&["-ls", "/"])?;
        expect(!listed.contains("/refused-2"), || listed.clone())?;
        Ok(class)
    }

    fn refused(&mut self) -> Result<Outcome> {
        self.fs.put("/refused", BLOCK, 1, json!({}))?;
        for (what, caller) in [("no token", ""), ("a name", "user.name=hdfs")] {
            expect_eq(what, self.same(what, caller)?.as_str(), DENIED)?;
        }
        let (other_password, other_number) = forged(&self.new_token()?)?;
        self.same("another identifier", &other_number)?;
        self.same("another password", &other_password)?;
        let cancelled = self.new_token()?;
        let caller = format!("delegation={cancelled}");
        self.node(0, &caller).get("/refused", "OPEN")?.is("200")?;
        let certificate = self.stores.certificate().display().to_string();
        let web = format!("https://{}", self.namenode);
        let put = ["-X", "PUT", "--cacert", certificate.as_str()];
        asked_with_ticket(
            &web,
            &format!("CANCELDELEGATIONTOKEN&token={cancelled}"),
            &put,
        )?;
        let class = self.same("a cancelled token", &caller)?;
        expect_eq("a cancelled token", class.as_str(), INVALID)?;
        passed()
    }

    fn ran_out(&mut self) -> Result<Outcome> {
        self.fs.put("/refused", BLOCK, 1, json!({}))?;
        let caller = format!("delegation={}", self.new_token()?);
        let asked = self.node(0, &caller);
        asked.get("/refused", "OPEN")?.is("200")?;
        wait::until("the token runs out", seconds(60), || {
            let answer = asked.get("/refused", "OPEN")?;
            Ok(match answer.code.as_str() {
                "200" => Seen::NotYet(String::new()),
                _ => Seen::Done(()),
            })
        })?;
        let class = self.same("a token that ran out", &caller)?;
        expect_eq("a token that ran out", class.as_str(), INVALID)?;
        passed()
    }
}

fn came_back(path: &Path, data: &[u8]) -> Result<()> {
    let read = std::fs::read(path).map_err(TestkitError::file("reading", path))?;
    expect(read == data, || "other bytes came back".to_owned())
}
