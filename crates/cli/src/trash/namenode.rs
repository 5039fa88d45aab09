//! What the active NameNode of a pool says of upgrades and of blocks, on its web port. Nothing is
//! changed there.

use std::collections::HashMap;
use std::time::Duration;

use hayloft_cluster::http::HttpLimits;
use hayloft_conf::Configuration;
use hayloft_wire::ids::PoolId;
use serde_json::Value;

use crate::error::CliError;
use crate::given::asks_in_clear;
use crate::top::fetch;

/// What to do where the pages of NameNodes cannot be asked, or not believed.
const LEFT_TO_NODES: &str = "leave the trash to the nodes, which empty it in time";
/// Blocks in one question: few enough for a line of HTTP and for a moment of the NameNode's time.
const BLOCKS_MAX: usize = 200;
const LIMITS: HttpLimits = HttpLimits {
    connect: Duration::from_secs(5),
    whole: Duration::from_secs(60),
    bytes: 16 << 20,
};

/// The web ports of the NameNodes that are configured.
pub struct ConfiguredNameNodes(Vec<String>);

/// The active NameNode of a pool.
#[derive(Debug)]
pub struct PoolNameNode {
    pub address: String,
    /// Why what it does not know may be needed for all that.
    pub unsettled: Option<&'static str>,
}

impl ConfiguredNameNodes {
    /// # Errors
    /// None is configured, or the cluster has Kerberos: its web pages are not asked in clear, and
    /// replicas go on what they say. Or they are for TLS alone, or for callers with tickets.
    pub fn of(config: &Configuration) -> Result<Self, CliError> {
        config.refuse_unprotected_calls()?;
        if config.has_kerberos() {
            return Err(CliError::new(
                "the web pages of a NameNode with Kerberos are not asked by this version",
                "hadoop.security.authentication",
                LEFT_TO_NODES,
            ));
        }
        asks_in_clear(config, &["/jmx", "/fsck"], LEFT_TO_NODES)?;
        let mut addresses = Vec::new();
        for service in hayloft_conf::namenodes(config)? {
            let id = service.id.as_deref();
            let web = |namenode| hayloft_conf::namenode_web_address(config, id, namenode);
            addresses.extend(service.namenodes.iter().filter_map(web));
        }
        Ok(Self(addresses.iter().map(ToString::to_string).collect()))
    }

    /// The one that is active and manages the pool.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn active(&self, pool: &PoolId) -> Result<PoolNameNode, String> {
        let mut others = Vec::new();
        for address in &self.0 {
            match look(address, pool) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => others.push(format!("{address} is not it")),
                Err(why) => others.push(format!("{address}: {why}")),
            }
        }
        Err(format!(
            "no active NameNode of the pool is found ({})",
            others.join("; ")
        ))
    }
}

/// `None` when it is another pool's, or not active.
fn look(address: &str, pool: &PoolId) -> Result<Option<PoolNameNode>, String> {
    let bean = |name: &str| {
        let page = format!("/jmx?qry=Hadoop:service=NameNode,name={name}");
        let page = fetch(address, &page, LIMITS)?;
        let mut page: Value = serde_json::from_str(&page).map_err(|e| e.to_string())?;
        Ok::<_, String>(page["beans"][0].take())
    };
    let info = bean("NameNodeInfo")?;
    if info["BlockPoolId"] != pool.as_str() || bean("NameNodeStatus")?["State"] != "active" {
        return Ok(None);
    }
    Ok(Some(PoolNameNode {
        address: address.to_owned(),
        unsettled: unsettled(&info),
    }))
}

/// By the bean `NameNodeInfo`. While an upgrade can be rolled back, deleted blocks may be needed.
fn unsettled(info: &Value) -> Option<&'static str> {
    match info.get("RollingUpgradeStatus") {
        Some(Value::Null) => {}
        Some(_) => return Some("a rolling upgrade runs"),
        None => return Some("it does not say whether a rolling upgrade runs"),
    }
    (info["UpgradeFinalized"] != true).then_some("an upgrade is not finalized")
}

impl PoolNameNode {
    /// Which of these blocks it knows; `true` is known. Blocks of which it says nothing are left
    /// out. `told` hears how many were asked.
    ///
    /// # Errors
    /// In words.
    pub fn known(
        &self,
        blocks: &[i64],
        mut told: impl FnMut(usize),
    ) -> Result<HashMap<i64, bool>, String> {
        let mut known = HashMap::new();
        for (number, some) in blocks.chunks(BLOCKS_MAX).enumerate() {
            let names: Vec<String> = some.iter().map(|id| format!("blk_{id}")).collect();
            let user = in_query(&hayloft_rpc::current_user());
            let page = format!(
                "/fsck?ugi={user}&user.name={user}&blockId={}",
                names.join("+")
            );
            let failed = |why| format!("NameNode {}: {why}", self.address);
            let answer = fetch(&self.address, &page, LIMITS).map_err(failed)?;
            known.extend(read(&answer).map_err(failed)?);
            told(number * BLOCKS_MAX + some.len());
        }
        Ok(known)
    }
}

/// As the query of a page wants text.
fn in_query(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).into(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The words of `fsck -blockId`.
fn read(answer: &str) -> Result<HashMap<i64, bool>, String> {
    if answer.contains("Access denied") {
        return Err("it answers its superuser alone: set HADOOP_USER_NAME".to_owned());
    }
    let block = |text: &str| text.strip_prefix("blk_")?.parse::<i64>().ok();
    let line = |line: &str| {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Block Id: ") {
            return Some((block(rest)?, true));
        }
        let rest = line
            .strip_prefix("Block ")?
            .strip_suffix(" does not exist")?;
        Some((block(rest)?, false))
    };
    Ok(answer.lines().filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_words_of_fsck_are_understood() {
        let answer = "FSCK started by hdfs (auth:SIMPLE) from /10.0.0.1 at Mon\n\n\
            Block Id: blk_1073741825\nBlock belongs to: /a/Block Id: blk_7\n\
            No. of Expected Replica: 3\n\nBlock blk_-92 does not exist\n\
            Block replica on datanode/rack: h/default-rack is HEALTHY\n\
            Fsck on blockId 'blk_9\n";
        let known = read(answer).expect("readable");
        assert_eq!(known, HashMap::from([(1_073_741_825, true), (-92, false)]));
        let refused = "Access denied for user x. Superuser privilege is required";
        assert!(
            read(refused)
                .expect_err("refused")
                .contains("HADOOP_USER_NAME")
        );
    }

    #[test]
    fn no_page_is_believed_where_there_is_kerberos() {
        let with = |authentication| {
            let nn = ("fs.defaultFS", "hdfs://nn:9000");
            let security = ("hadoop.security.authentication", authentication);
            let config = Configuration::from_properties([nn, security]).expect("valid");
            ConfiguredNameNodes::of(&config)
        };
        assert!(with("simple").is_ok());
        let refused = with("kerberos").err().expect("refused").to_string();
        assert!(refused.contains("Kerberos are not asked"), "{refused}");
        let tls = [
            ("fs.defaultFS", "hdfs://nn:9000"),
            ("dfs.http.policy", "HTTPS_ONLY"),
        ];
        let config = Configuration::from_properties(tls).expect("valid");
        let refused = ConfiguredNameNodes::of(&config).err().expect("refused");
        let refused = refused.to_string();
        assert!(
            refused.contains("over HTTPS alone are not asked"),
            "{refused}"
        );
    }

    #[test]
    fn a_user_is_one_word_of_the_query() {
        assert_eq!(in_query("hdfs-1"), "hdfs-1");
        assert_eq!(in_query("a&b c\r\n"), "a%26b%20c%0D%0A");
    }

    #[test]
    fn nothing_is_settled_while_an_upgrade_can_be_taken_back() {
        let settled = json!({"RollingUpgradeStatus": null, "UpgradeFinalized": true});
        assert_eq!(unsettled(&settled), None);
        for wrong in [
            json!({"RollingUpgradeStatus": {"startTime": 1}, "UpgradeFinalized": true}),
            json!({"RollingUpgradeStatus": null, "UpgradeFinalized": false}),
            json!({"UpgradeFinalized": true}),
            json!({"RollingUpgradeStatus": null}),
            json!({}),
        ] {
            assert!(unsettled(&wrong).is_some(), "{wrong}");
        }
    }
}
