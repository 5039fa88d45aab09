//! Clients in Python: Spark, with a ticket or a keytab of its own, and hdfs-native.

use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::{Cluster, Outcome, Suite};
use std::path::PathBuf;

use crate::programs::{HDFS_NATIVE, PYSPARK, Python};
use crate::{PRIVACY, protected, realm};

pub fn cases(suite: &mut Suite) {
    let mut on = suite.group(Lab::start, |lab, failed| lab.cluster.conclude(failed));
    on.case("spark_with_a_ticket_privacy", |lab| lab.python.run(PYSPARK));
    on.case("spark_with_a_keytab_privacy", |lab| lab.by_keytab());
    on.case("hdfs_native_privacy", |lab| lab.python.run(HDFS_NATIVE));
}

struct Lab {
    cluster: Cluster,
    python: Python,
    keytab: PathBuf,
    _realm: Realm,
}

impl Lab {
    fn start() -> Result<Self> {
        let realm = realm()?;
        let mut cluster = protected(&realm, PRIVACY)?
            .conf("dfs.replication", 2)
            .nodes(3, Kind::under_test())
            .start()?;
        let uri = cluster.namenode(0).uri();
        Ok(Self {
            python: Python::new(uri, cluster.dir().to_path_buf(), cluster.client_conf_dir()),
            keytab: realm.dir().join("services.keytab"),
            cluster,
            _realm: realm,
        })
    }

    /// Spark logs in by itself where there is no ticket.
    fn by_keytab(&mut self) -> Result<Outcome> {
        let none = ("KRB5CCNAME".to_owned(), "FILE:/no-such-cache".to_owned());
        self.python.env.push(none);
        self.python.submit = format!("--principal hdfs --keytab {}", self.keytab.display());
        let ran = self.python.run(PYSPARK);
        self.python.env.clear();
        self.python.submit.clear();
        ran
    }
}
