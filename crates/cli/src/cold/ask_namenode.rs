//! What the scan asks a NameNode, whichever of a group is active.

use std::time::Duration;

use bytes::Bytes;
use hayloft_client::login;
use hayloft_conf::{Configuration, NameService};
use hayloft_rpc::{Protocol, RpcClient, RpcError, RpcOptions, RpcSecurity};
use hayloft_wire::proto::file_status::HdfsFileStatus;
use hayloft_wire::proto::hdfs::StorageType;
use hayloft_wire::proto::namespace::*;
use hayloft_wire::rpc::names::CLIENT_NAMENODE_PROTOCOL;
use hayloft_wire::schema::WireMessage;
use tokio::sync::Mutex;

use crate::error::CliError;

/// How often each NameNode of a group is tried before a call is given up.
const ROUNDS: usize = 3;
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(2);

/// Calls to the active NameNode of one name service. Every call here may be repeated: reading
/// changes nothing, and a policy that is set or unset twice is what it was after the first time.
#[derive(Debug)]
pub struct ActiveNameNode {
    /// As shown to the user.
    name: String,
    clients: Vec<RpcClient>,
    /// The one that answered last.
    active: Mutex<usize>,
}

/// The storage policies that a NameNode knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyNames(Vec<(u8, String)>);

/// What the live DataNodes have of type ARCHIVE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveSpace {
    /// Storages.
    pub storages: u64,
    /// Bytes free on them.
    pub free: u64,
    /// When a DataNode was heard last, by the NameNode's clock; milliseconds since 1970.
    pub heard_ms: u64,
}

impl ActiveNameNode {
    /// The NameNodes of a name service of the configuration: of the one named, else of the only
    /// one.
    ///
    /// # Errors
    /// No NameNode is configured, several name services are and none was named, or the cluster
    /// wants what is not served.
    pub fn of(config: &Configuration, service: Option<&str>) -> Result<Self, CliError> {
        config.refuse_unprotected_calls()?;
        let services = hayloft_conf::namenodes(config)?;
        let service = choose(services, service)?;
        let options = RpcOptions {
            security: security(config)?,
            ..RpcOptions::default()
        };
        let client = |address: &hayloft_conf::HostPort| {
            let protocol: Protocol = CLIENT_NAMENODE_PROTOCOL;
            RpcClient::new(address.to_string(), protocol, options.clone())
        };
        let clients: Vec<RpcClient> = service.namenodes.iter().map(|n| client(&n.rpc)).collect();
        let name = service.id.unwrap_or_else(|| {
            let first = clients.first().map(RpcClient::address);
            first.unwrap_or_default().to_owned()
        });
        Ok(Self {
            name,
            clients,
            active: Mutex::new(0),
        })
    }

    /// The name service, or the NameNode's address where there is none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many NameNodes the name service has.
    pub fn count(&self) -> usize {
        self.clients.len()
    }

    async fn call<Req, Resp>(&self, method: &'static str, request: &Req) -> Result<Resp, RpcError>
    where
        Req: prost::Message,
        Resp: WireMessage,
    {
        let mut failed = None;
        for attempt in 0..ROUNDS * self.clients.len() {
            if attempt > 0 && attempt % self.clients.len() == 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let at = *self.active.lock().await;
            match self.clients[at].call(method, request).await {
                Ok(answer) => return Ok(answer),
                Err(error) if goes_elsewhere(&error) => {
                    let mut active = self.active.lock().await;
                    // Another call may have turned to the next one meanwhile.
                    if *active == at {
                        *active = (at + 1) % self.clients.len();
                    }
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(failed.unwrap_or(RpcError::Connect {
            address: self.name.clone(),
            reason: "no NameNode is configured".to_owned(),
        }))
    }

    /// A part of a directory's listing, of what comes after the name `after`; `None` when there is
    /// no such path.
    ///
    /// # Errors
    /// As the NameNode says, or no active one answers.
    pub async fn list(
        &self,
        path: &str,
        after: &Bytes,
    ) -> Result<Option<DirectoryListing>, RpcError> {
        let request = GetListingRequest {
            src: path.to_owned(),
            start_after: after.clone(),
            need_location: false,
        };
        let answer: GetListingResponse = self.call("getListing", &request).await?;
        Ok(answer.dir_list)
    }

    /// What a path is; `None` when there is no such path.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn status(&self, path: &str) -> Result<Option<HdfsFileStatus>, RpcError> {
        let request = GetFileInfoRequest {
            src: path.to_owned(),
        };
        let answer: GetFileInfoResponse = self.call("getFileInfo", &request).await?;
        Ok(answer.fs)
    }

    /// Gives a path a storage policy of its own; with `None` it inherits one again.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn set_policy(&self, path: &str, policy: Option<&str>) -> Result<(), RpcError> {
        let src = path.to_owned();
        if let Some(policy) = policy {
            let policy_name = policy.to_owned();
            let request = SetStoragePolicyRequest { src, policy_name };
            let _: SetStoragePolicyResponse = self.call("setStoragePolicy", &request).await?;
        } else {
            let request = UnsetStoragePolicyRequest { src };
            let _: UnsetStoragePolicyResponse = self.call("unsetStoragePolicy", &request).await?;
        }
        Ok(())
    }

    /// The storage policies that it knows.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn policies(&self) -> Result<PolicyNames, RpcError> {
        let request = GetStoragePoliciesRequest {};
        let answer: GetStoragePoliciesResponse = self.call("getStoragePolicies", &request).await?;
        let known = answer.policies.into_iter();
        let known = known.filter_map(|p| Some((u8::try_from(p.policy_id).ok()?, p.name)));
        Ok(PolicyNames(known.collect()))
    }

    /// Whether the active one is in safe mode: then it changes nothing.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn is_in_safe_mode(&self) -> Result<bool, RpcError> {
        let request = SetSafeModeRequest {
            action: SafeModeAction::Get.into(),
            checked: Some(true),
        };
        let answer: SetSafeModeResponse = self.call("setSafeMode", &request).await?;
        Ok(answer.result)
    }

    /// What the live DataNodes have of type ARCHIVE. For the superuser alone.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn archive_space(&self) -> Result<ArchiveSpace, RpcError> {
        let request = GetDatanodeStorageReportRequest {
            r#type: DatanodeReportType::Live.into(),
        };
        let answer: GetDatanodeStorageReportResponse =
            self.call("getDatanodeStorageReport", &request).await?;
        let nodes = &answer.datanode_storage_reports;
        let heard = nodes.iter().map(|node| node.datanode_info.last_update());
        let mut space = ArchiveSpace {
            heard_ms: heard.max().unwrap_or(0),
            ..ArchiveSpace::default()
        };
        let storages = nodes.iter().flat_map(|node| &node.storage_reports);
        for report in storages {
            let kind = report
                .storage
                .as_ref()
                .map(|storage| storage.storage_type());
            if kind == Some(StorageType::Archive) && !report.failed() {
                space.storages += 1;
                space.free = space.free.saturating_add(report.remaining());
            }
        }
        Ok(space)
    }
}

impl PolicyNames {
    /// The number of a policy.
    pub fn number(&self, name: &str) -> Option<u8> {
        let named = self.0.iter().find(|(_, known)| known == name);
        named.map(|(number, _)| *number)
    }

    /// The name of a policy.
    pub fn name(&self, number: u8) -> Option<&str> {
        let numbered = self.0.iter().find(|(known, _)| *known == number);
        numbered.map(|(_, name)| &**name)
    }
}

/// The name service named, else the only one.
///
/// # Errors
/// There are several and none was named, or none of that name.
pub fn choose(services: Vec<NameService>, named: Option<&str>) -> Result<NameService, CliError> {
    let ids: Vec<String> = services.iter().filter_map(|s| s.id.clone()).collect();
    let several = services.len() > 1;
    let fits = |service: &NameService| named.is_none_or(|name| service.id.as_deref() == Some(name));
    let mut fitting = services.into_iter().filter(fits);
    match (named, fitting.next()) {
        (None, Some(_)) if several => Err(CliError::new(
            "the configuration has several name services",
            ids.join(", "),
            "say which with --nameservice",
        )),
        (_, Some(service)) => Ok(service),
        (named, None) => Err(CliError::new(
            format!("no name service {}", named.unwrap_or_default()),
            ids.join(", "),
            "give one of dfs.nameservices",
        )),
    }
}

/// How the command says who runs it: with a ticket, where the cluster has Kerberos.
fn security(config: &Configuration) -> Result<Option<RpcSecurity>, CliError> {
    login::command_to_namenodes(config)
        .map_err(|why| CliError::new(why, "core-site.xml", "correct it"))
}

/// Whether another NameNode, or the same a little later, may answer.
fn goes_elsewhere(error: &RpcError) -> bool {
    error.is_standby()
        || error.is_remote("RetriableException")
        || matches!(
            error,
            RpcError::Connect { .. } | RpcError::Lost { .. } | RpcError::Timeout { .. }
        )
}

/// An error of a call as the user is told it.
pub fn refused(doing: &str, path: &str, error: &RpcError) -> CliError {
    let advice = if error.is_remote("AccessControlException") {
        "run it as the superuser of HDFS (HADOOP_USER_NAME, or kinit where there is Kerberos)"
    } else if error.is_remote("SafeModeException") {
        "wait until the NameNode has left safe mode"
    } else if matches!(error, RpcError::Unproven { .. }) {
        "run kinit, and compare core-site.xml with the NameNode's"
    } else if error.remote_class().is_some() {
        "its log says more"
    } else {
        "check that the NameNode runs and --conf names its address"
    };
    let told = CliError::new(format!("cannot {doing}: {}", error.brief()), path, advice);
    if error.is_remote("AccessControlException") {
        told.lasting()
    } else {
        told
    }
}

/// An absolute path of HDFS, without a slash at its end.
///
/// # Errors
/// What is accepted, in words.
pub fn hdfs_path(text: &str) -> Result<String, String> {
    let names: Vec<&str> = text.split('/').skip(1).filter(|n| !n.is_empty()).collect();
    let plain = names.iter().all(|name| !matches!(*name, "." | ".."));
    if !text.starts_with('/') || !plain {
        return Err("must be an absolute path of HDFS, such as /data/logs".to_owned());
    }
    Ok(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_plain() {
        for (text, path) in [("/", "/"), ("/a/b/", "/a/b"), ("//a//b", "/a/b")] {
            assert_eq!(hdfs_path(text).as_deref(), Ok(path));
        }
        for wrong in ["", "a", "hdfs://nn/a", "/a/../b", "/."] {
            assert!(hdfs_path(wrong).is_err(), "{wrong}");
        }
    }

    fn of(pairs: &[(&str, &str)], service: Option<&str>) -> Result<ActiveNameNode, CliError> {
        let config = Configuration::from_properties(pairs.iter().copied()).expect("valid");
        ActiveNameNode::of(&config, service)
    }

    #[test]
    fn the_name_service_is_the_only_one_or_named() {
        let one = of(&[("fs.defaultFS", "hdfs://nn:9000")], None).expect("one");
        assert_eq!((one.name(), one.clients.len()), ("nn:9000", 1));
        let of_data_ports = ("dfs.trustedchannel.resolver.class", "org.example.List");
        let calls = of(&[("fs.defaultFS", "hdfs://nn"), of_data_ports], None);
        assert!(calls.is_ok(), "{calls:?}");
        let two = [
            ("dfs.nameservices", "east,west"),
            ("dfs.namenode.rpc-address.east", "e:1"),
            ("dfs.ha.namenodes.west", "a,b"),
            ("dfs.namenode.rpc-address.west.a", "a:1"),
            ("dfs.namenode.rpc-address.west.b", "b:1"),
        ];
        let west = of(&two, Some("west")).expect("named");
        assert_eq!((west.name(), west.count()), ("west", 2));
        let error = of(&two, None).expect_err("ambiguous").to_string();
        assert!(
            error.contains("east, west") && error.contains("--nameservice"),
            "{error}"
        );
        assert!(
            of(&two, Some("north"))
                .expect_err("unknown")
                .to_string()
                .contains("north")
        );
        let kerberos = [
            ("fs.defaultFS", "hdfs://nn"),
            ("hadoop.security.authentication", "kerberos"),
        ];
        let refused = of(&kerberos, None).expect_err("no principal").to_string();
        let told = "dfs.namenode.kerberos.principal is not set";
        assert!(refused.contains(told), "{refused}");
    }
}
