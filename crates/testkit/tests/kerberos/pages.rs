//! Web pages behind the filter of tickets: a node of ours and a stock one answer the same requests
//! with the same codes.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::{expect, expect_eq, passed};
use hayloft_testkit::{Cluster, NodeSpec, Outcome, Suite, TestkitError};
use std::path::Path;
use std::process::Command;

use crate::{at_localhost, realm, secure};

const OURS: usize = 0;
const STOCK: usize = 1;
/// What both nodes have.
const PAGES: [&str; 6] = [
    "/jmx?qry=java.lang:type=Runtime",
    "/conf?name=dfs.replication",
    "/stacks",
    "/logLevel?log=org.apache.hadoop.hdfs",
    "/blockScannerReport",
    "/no-such-page",
];
/// Where [`PAGES`] have what is for administrators alone, as `/logs/`, which a stock node without a
/// directory of logs does not have.
const LOG: usize = 3;
const FILTERS: &str = "org.apache.hadoop.http.lib.StaticUserWebFilter,\
                       org.apache.hadoop.security.AuthenticationFilterInitializer";
const PREFIX: &str = "hadoop.http.authentication";

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(
        || Pages::start("kerberos"),
        |lab, failed| {
            lab.cluster.conclude(failed);
        },
    );
    on.case("pages_ask_for_tickets", |lab| lab.tickets());
    on.case("one_cookie_serves_both_nodes", |lab| lab.cookies());
    on.case("webhdfs_is_not_behind_the_filter", |lab| lab.webhdfs());
    let mut on = suite.group(
        || Pages::start("simple"),
        |lab, failed| {
            lab.cluster.conclude(failed);
        },
    );
    on.case("pages_ask_for_a_name", |lab| lab.names());
}

struct Pages {
    cluster: Cluster,
    realm: Realm,
    /// The file of curl's cookies.
    jar: String,
}

impl Pages {
    /// A secure cluster whose pages are behind the filter of that type.
    fn start(by: &str) -> Result<Self> {
        let realm = realm()?;
        let builder = secure(&realm, "authentication")?;
        let keytab = realm.dir().join("services.keytab");
        let secret = realm.dir().join("http-secret");
        std::fs::write(&secret, "shared by all\n")
            .map_err(TestkitError::file("writing", &secret))?;
        // The NameNode keeps its pages open: the test asks it, too.
        let spec = |kind| {
            let mut spec = NodeSpec::new(kind).conf("hadoop.http.filter.initializers", FILTERS);
            for (name, value) in [
                ("type", by.to_owned()),
                ("simple.anonymous.allowed", "false".to_owned()),
                ("kerberos.principal", at_localhost("HTTP")),
                ("kerberos.keytab", keytab.display().to_string()),
                ("kerberos.endpoint.whitelist", "/stacks".to_owned()),
                ("signature.secret.file", secret.display().to_string()),
            ] {
                spec = spec.conf(&format!("{PREFIX}.{name}"), value);
            }
            spec
        };
        let cluster = builder
            .conf("dfs.replication", 2)
            .conf("hadoop.security.authorization", true)
            .conf("dfs.cluster.administrators", "hdfs")
            .node(spec(Kind::Hayloft))
            .node(spec(Kind::Apache))
            .start()?;
        let jar = realm.dir().join("cookies").display().to_string();
        Ok(Self {
            cluster,
            realm,
            jar,
        })
    }

    /// What curl makes of a page: the code, after all that it does by itself, and the headers.
    fn ask(&mut self, node: usize, page: &str, options: &[&str]) -> Result<(String, String)> {
        let port = self.cluster.node(node).http_port();
        let url = format!("http://localhost:{port}{page}");
        let headers = self.realm.dir().join("headers");
        let shown = headers.display().to_string();
        let fixed = ["-s", "-o", "/dev/null", "-D", &shown, "-w", "%{http_code}"];
        let ran = Command::new("curl")
            .args(fixed)
            .args(options)
            .arg(&url)
            .output();
        let ran = ran.map_err(TestkitError::file("running", Path::new("curl")))?;
        let code = String::from_utf8_lossy(&ran.stdout).into_owned();
        Ok((code, std::fs::read_to_string(&headers).unwrap_or_default()))
    }

    /// The codes of all pages are those of the stock node, and these.
    fn agree(&mut self, who: &str, options: &[&str], codes: [&str; 6]) -> Result<()> {
        for (page, expected) in PAGES.into_iter().zip(codes) {
            let (ours, _) = self.ask(OURS, page, options)?;
            let (stock, _) = self.ask(STOCK, page, options)?;
            expect_eq(&format!("{page} for {who}"), &ours, &stock)?;
            expect_eq(&format!("{page} for {who}"), ours.as_str(), expected)?;
        }
        let (logs, _) = self.ask(OURS, "/logs/", options)?;
        expect_eq(&format!("/logs/ for {who}"), logs.as_str(), codes[LOG])
    }

    fn tickets(&mut self) -> Result<Outcome> {
        let without = ["401", "401", "200", "401", "401", "401"];
        self.agree("callers without a ticket", &[], without)?;
        let named = ["-u", "ann:secret"];
        self.agree("callers with a password", &named, without)?;
        let negotiate = ["--negotiate", "-u", ":"];
        let all = ["200", "200", "200", "200", "200", "404"];
        self.agree("an administrator", &negotiate, all)?;
        let forged = ["-H", "Authorization: Negotiate YWJj"];
        let refused = ["403", "403", "200", "403", "403", "403"];
        self.agree("callers with a token that is none", &forged, refused)?;
        let keytab = self.realm.keytab("pages-ann.keytab", &["ann"])?;
        let services = self.realm.dir().join("services.keytab");
        self.realm.kinit("ann", &keytab)?;
        let some = ["200", "200", "200", "403", "200", "404"];
        let told = self.agree("ann", &negotiate, some);
        self.realm.kinit("hdfs", &services)?;
        told?;
        passed()
    }

    /// A cookie that one node gave serves at the other, and none that was changed.
    fn cookies(&mut self) -> Result<Outcome> {
        let jar = self.jar.clone();
        for (from, to) in [(OURS, STOCK), (STOCK, OURS)] {
            let _gone = std::fs::remove_file(&jar);
            let get = ["--negotiate", "-u", ":", "-c", jar.as_str()];
            let (code, headers) = self.ask(from, PAGES[0], &get)?;
            expect_eq("code", code.as_str(), "200")?;
            let set = headers
                .lines()
                .rfind(|line| line.starts_with("Set-Cookie:"));
            let set = set.or(headers
                .lines()
                .rfind(|line| line.starts_with("set-cookie:")));
            let set = set.unwrap_or_default().to_owned();
            let whole = set.contains("hadoop.auth=\"u=hdfs&p=hdfs@HAYLOFT.TEST&t=kerberos&e=")
                && set.ends_with("\"; Path=/; HttpOnly");
            expect(whole, || set.clone())?;
            let (code, _) = self.ask(to, PAGES[0], &["-b", jar.as_str()])?;
            expect_eq("with the other's cookie", code.as_str(), "200")?;
            let cookie = set.split_once(": ").map_or("", |(_, rest)| rest);
            let cookie = cookie.split(';').next().unwrap_or_default();
            let changed = cookie.replace("u=hdfs", "u=root");
            for node in [OURS, STOCK] {
                let (code, _) = self.ask(node, PAGES[0], &["-b", &changed])?;
                expect_eq("with a changed cookie", code.as_str(), "401")?;
            }
        }
        passed()
    }

    /// Its callers have tokens of a NameNode, which the filter does not know.
    fn webhdfs(&mut self) -> Result<Outcome> {
        for node in [OURS, STOCK] {
            let (code, headers) = self.ask(node, "/webhdfs/v1/x?op=OPEN&user.name=hdfs", &[])?;
            let asked = headers.to_lowercase().contains("www-authenticate");
            expect(!asked, || format!("{node}: {code} {headers}"))?;
            expect(code != "200", || code.clone())?;
        }
        passed()
    }

    fn names(&mut self) -> Result<Outcome> {
        let without = ["401"; 6];
        self.agree("callers without a name", &[], without)?;
        let jar = self.jar.clone();
        for (user, log) in [("hdfs", "200"), ("ann", "403")] {
            let _gone = std::fs::remove_file(&jar);
            for node in [OURS, STOCK] {
                let get = format!("/conf?name=dfs.replication&user.name={user}");
                let (code, _) = self.ask(node, &get, &["-c", jar.as_str()])?;
                expect_eq("with a name", code.as_str(), "200")?;
            }
            let codes = ["200", "200", "200", log, "200", "404"];
            self.agree(user, &["-b", jar.as_str()], codes)?;
        }
        passed()
    }
}
