//! WebHDFS with delegation tokens: nodes of ours and a stock one serve the same tokens, and refuse
//! the others with the same codes and exceptions.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, Outcome, Suite, TestkitError};
use serde_json::json;

use crate::by_curl::NodeByCurl;
use crate::web_tokens::{
    DENIED, INVALID, asked_with_ticket, forged, gives_tokens, new_token, refusal,
};
use crate::{BLOCK, realm, secure};

/// Nodes of ours; one of Apache's comes behind them.
const OURS: usize = 2;

pub fn cases(suite: &mut Suite) {
    for protection in ["authentication", "privacy"] {
        let name = |what: &str| format!("{what}_{protection}");
        let mut on = suite.group(
            move || Tokens::start(protection, &[]),
            |lab, failed| lab.cluster.conclude(failed),
        );
        on.case(name("tokens_write_and_read_over_webhdfs"), |lab| {
            lab.served()
        });
        on.case(name("tokens_read_open_files_over_webhdfs"), |lab| {
            lab.open_files()
        });
        on.case(name("tokens_that_are_not_good_are_refused"), |lab| {
            lab.refused()
        });
        on.case(name("tokens_are_good_for_their_user_alone"), |lab| {
            lab.of_ann()
        });
        on.case(name("stock_clients_use_webhdfs_with_tickets"), |lab| {
            lab.stock_client()
        });
        on.case(name("tokens_are_in_no_log"), |lab| lab.logs());
    }
    let mut on = suite.group(
        || {
            Tokens::start(
                "integrity",
                &[("dfs.namenode.delegation.token.renew-interval", "6000")],
            )
        },
        |lab, failed| lab.cluster.conclude(failed),
    );
    on.case("tokens_that_ran_out_are_refused", |lab| lab.ran_out());
}

struct Tokens {
    cluster: Cluster,
    fs: Driver,
    realm: Realm,
    /// That of the superuser, which most cases use.
    token: String,
}

impl Tokens {
    /// A secure cluster whose NameNode gives tokens to callers with tickets on its web port.
    fn start(protection: &str, more: &[(&str, &str)]) -> Result<Self> {
        let realm = realm()?;
        let mut builder = gives_tokens(&realm, secure(&realm, protection)?)?
            .nodes(OURS, Kind::Hayloft)
            .nodes(1, Kind::Apache)
            .conf("dfs.data.transfer.protection", protection)
            .conf(
                "dfs.encrypt.data.transfer.cipher.suites",
                "AES/CTR/NoPadding",
            );
        for (name, value) in more {
            builder = builder.conf(name, value);
        }
        let cluster = builder.start()?;
        let fs = cluster.driver()?;
        let mut lab = Self {
            cluster,
            fs,
            realm,
            token: String::new(),
        };
        lab.token = lab.new_token()?;
        Ok(lab)
    }

    /// What the NameNode's web port answers to the holder of the present ticket.
    fn namenode(&mut self, op: &str, options: &[&str]) -> Result<serde_json::Value> {
        let port = self.cluster.namenode(0).http_port();
        asked_with_ticket(&format!("http://localhost:{port}"), op, options)
    }

    fn new_token(&mut self) -> Result<String> {
        let port = self.cluster.namenode(0).http_port();
        new_token(&format!("http://localhost:{port}"), &[])
    }

    /// A node, asked with a token and more parameters.
    fn with(&mut self, node: usize, token: &str, more: &str) -> NodeByCurl {
        let caller = format!("delegation={token}{more}");
        NodeByCurl::new(&mut self.cluster, node, &caller)
    }

    fn served(&mut self) -> Result<Outcome> {
        for node in 0..=OURS {
            let token = self.token.clone();
            // Names in the query say nothing beside a token.
            let asked = self.with(node, &token, "&user.name=bob&doas=ann");
            asked.works(&self.fs, &format!("/by-token-{node}"), BLOCK)?;
        }
        passed()
    }

    fn open_files(&mut self) -> Result<Outcome> {
        for node in 0..=OURS {
            let token = self.token.clone();
            let asked = self.with(node, &token, "");
            asked.reads_open(&self.fs, &format!("/open-by-token-{node}"), BLOCK)?;
        }
        passed()
    }

    /// Codes and exceptions of ours are those of the stock node, and this code.
    fn same(&mut self, what: &str, caller: &str) -> Result<(String, String)> {
        let mut told = Vec::new();
        for node in [0, OURS] {
            let asked = NodeByCurl::new(&mut self.cluster, node, caller);
            told.push(refusal(&asked.get("/refused", "OPEN")?));
            let sent = asked.send("PUT", "/refused-2", "CREATE", b"bytes")?;
            told.push(refusal(&sent));
        }
        println!("kerberos: {what}: {told:?}");
        let [first, ours @ .., stock] = told.as_slice() else {
            return Err(TestkitError::Expectation(what.to_owned()));
        };
        expect_eq(what, ours.first(), Some(first))?;
        expect_eq(what, &first.0, &stock.0)?;
        expect_eq(what, first.0.as_str(), "403")?;
        let listed = self.fs.fs(&["-ls", "/"])?;
        expect(!listed.contains("/refused-2"), || listed.clone())?;
        Ok(first.clone())
    }

    fn refused(&mut self) -> Result<Outcome> {
        self.fs.put("/refused", BLOCK, 1, json!({}))?;
        for (what, caller) in [
            ("no token", String::new()),
            ("a name", "user.name=hdfs".to_owned()),
            ("no base64", "delegation=a*b".to_owned()),
            (
                "a token cut off",
                format!("delegation={}", &self.token[..40]),
            ),
        ] {
            let (_, class) = self.same(what, &caller)?;
            expect_eq(what, class.as_str(), DENIED)?;
        }
        let (other_password, other_number) = forged(&self.new_token()?)?;
        self.same("another identifier", &other_number)?;
        // A stock node that knows the good token serves this one, too, for ten minutes.
        self.same("another password", &other_password)?;
        let (other_password, _) = forged(&self.token)?;
        let asked = NodeByCurl::new(&mut self.cluster, 0, &other_password);
        asked.get("/refused", "OPEN")?.is("403")?;
        let cancelled = self.new_token()?;
        let asked = self.with(0, &cancelled, "");
        asked.get("/refused", "OPEN")?.is("200")?;
        let op = format!("CANCELDELEGATIONTOKEN&token={cancelled}");
        self.namenode(&op, &["-X", "PUT"])?;
        let (_, class) = self.same("a cancelled token", &format!("delegation={cancelled}"))?;
        expect_eq("a cancelled token", class.as_str(), INVALID)?;
        passed()
    }

    fn ran_out(&mut self) -> Result<Outcome> {
        self.fs.put("/refused", BLOCK, 1, json!({}))?;
        let token = self.new_token()?;
        let asked = self.with(0, &token, "");
        asked.get("/refused", "OPEN")?.is("200")?;
        wait::until("the token runs out", seconds(60), || {
            let answer = asked.get("/refused", "OPEN")?;
            Ok(match answer.code.as_str() {
                "200" => Seen::NotYet(String::new()),
                _ => Seen::Done(()),
            })
        })?;
        let (_, class) = self.same("a token that ran out", &format!("delegation={token}"))?;
        expect_eq("a token that ran out", class.as_str(), INVALID)?;
        passed()
    }

    fn of_ann(&mut self) -> Result<Outcome> {
        self.fs.put("/private", BLOCK, 2, json!({}))?;
        self.fs.fs(&["-chmod", "600", "/private"])?;
        self.fs.put("/public", BLOCK, 2, json!({}))?;
        let keytab = self.realm.keytab("webhdfs-ann.keytab", &["ann"])?;
        self.realm.kinit("ann", &keytab)?;
        let token = self.new_token();
        let services = self.realm.dir().join("services.keytab");
        self.realm.kinit("hdfs", &services)?;
        let token = token?;
        for node in 0..=OURS {
            let asked = self.with(node, &token, "&user.name=hdfs&doas=hdfs");
            let (code, class) = refusal(&asked.get("/private", "OPEN")?);
            expect_eq("private", (code.as_str(), class.as_str()), ("403", DENIED))?;
            asked.get("/public", "OPEN")?.is("200")?;
            let sent = asked.send("PUT", "/of-ann", "CREATE", b"bytes")?;
            expect_eq("in the root", sent.code.as_str(), "403")?;
        }
        passed()
    }

    fn stock_client(&mut self) -> Result<Outcome> {
        let port = self.cluster.namenode(0).http_port();
        let web = format!("webhdfs://localhost:{port}");
        let file = self.cluster.dir().join("sent-by-stock");
        let back = self.cluster.dir().join("received-by-stock");
        let data = crate::by_curl::bytes(3, 0, 2 * BLOCK + 9);
        std::fs::write(&file, &data).map_err(TestkitError::file("writing", &file))?;
        let (sent, received) = (file.display().to_string(), back.display().to_string());
        // The NameNode sends each of them to a node that it chooses.
        for number in 0..6 {
            let path = format!("/by-stock-{number}");
            let over_web = format!("{web}{path}");
            self.fs.fs(&["-put", "-f", &sent, &over_web])?;
            self.fs.check(&path, 2 * BLOCK + 9, 3)?;
            self.fs.fs(&["-get", "-f", &over_web, &received])?;
            let read = std::fs::read(&back).map_err(TestkitError::file("reading", &back))?;
            expect(read == data, || "other bytes came back".to_owned())?;
        }
        passed()
    }

    fn logs(&mut self) -> Result<Outcome> {
        for node in 0..OURS {
            let path = self.cluster.node(node).log();
            let log = std::fs::read_to_string(&path);
            let log = log.map_err(TestkitError::file("reading", &path))?;
            expect(log.len() > 100, || format!("{path:?} is no log"))?;
            expect(!log.contains(&self.token), || {
                format!("{path:?} has a token")
            })?;
        }
        passed()
    }
}
