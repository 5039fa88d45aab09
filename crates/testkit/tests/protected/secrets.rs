//! Secrets of a protected cluster, and a search for them in what a node says.

use bytes::Bytes;
use hayloft_rpc::{
    KerberosLogin, LoginSource, RpcClient, RpcOptions, RpcQuality, RpcSecurity, ServerPrincipal,
};
use hayloft_testkit::error::Result;
use hayloft_testkit::hadoop_conf::Conf;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::suite::expect;
use hayloft_testkit::tls_stores::TlsStores;
use hayloft_testkit::{Cluster, NodeSpec, TestkitError, ports};
use hayloft_wire::proto::datanode::KeyUpdateCommand;
use hayloft_wire::proto::hdfs_server::VersionRequest;
use hayloft_wire::rpc::names::NAMENODE_PROTOCOL;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::in_realm::at_localhost;

/// What a node signs its cookies with.
const COOKIES: &str = "cookies-8f1c27d04b6e";
/// A value of a site file.
const OF_SITE: &str = "of-site-5be09a7734cd";
/// Opens the node's keystore.
const KEYSTORE: &str = "ssl.server.keystore.password";
/// Shorter ones stand in texts by chance.
const BYTES_MIN: usize = 8;

/// A secret that nodes know.
pub struct Secret {
    /// What it is.
    pub what: String,
    bytes: Vec<u8>,
}

/// A node with secrets of its own: a keystore, what signs its cookies, and one of a site file.
pub fn given_to(spec: NodeSpec, realm: &Realm) -> Result<NodeSpec> {
    let dir = realm.dir().join("secrets");
    std::fs::create_dir_all(&dir).map_err(TestkitError::file("making", &dir))?;
    let stores = TlsStores::at(&dir);
    stores.make()?;
    let mut keys = Conf::new();
    stores.configure(&mut keys);
    let cookies = dir.join("cookies");
    std::fs::write(&cookies, COOKIES).map_err(TestkitError::file("writing", &cookies))?;
    let address = format!("127.0.0.1:{}", ports::free()?);
    let spec = spec
        .conf("dfs.http.policy", "HTTP_AND_HTTPS")
        .conf("dfs.datanode.https.address", address)
        .conf(
            "hadoop.http.filter.initializers",
            "org.apache.hadoop.security.AuthenticationFilterInitializer",
        )
        .conf(
            "hadoop.http.authentication.signature.secret.file",
            cookies.display(),
        )
        .conf("fs.s3a.secret.key", OF_SITE);
    let all = keys.iter();
    Ok(all.fold(spec, |spec, (key, value)| spec.conf(key, value)))
}

/// Those of the cluster and of the node that [`given_to`] made. Needs the superuser's ticket.
pub fn of(cluster: &mut Cluster, node: usize, realm: &Realm) -> Result<Vec<Secret>> {
    let password = cluster.node(node).conf_mut().get(KEYSTORE);
    let password = password.unwrap_or_default().to_owned();
    let mut all = vec![
        Secret::new(KEYSTORE, password)?,
        Secret::new("what signs cookies", COOKIES)?,
        Secret::new("a key of a site file", OF_SITE)?,
    ];
    let of_keytab = keys_of(&realm.dir().join("services.keytab"))?;
    let block_keys = block_keys(cluster.namenode(0).rpc())?;
    let found = (of_keytab.len(), block_keys.len());
    // Of four principals, and the key of now with the one to come.
    expect(found.0 >= 4 && found.1 >= 2, || format!("keys: {found:?}"))?;
    for key in of_keytab {
        all.push(Secret::new("a key of the keytab", key)?);
    }
    for key in block_keys {
        all.push(Secret::new("a block key", key)?);
    }
    Ok(all)
}

impl Secret {
    fn new(what: &str, bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let bytes = bytes.into();
        expect(bytes.len() >= BYTES_MIN, || {
            format!("{what}: {} bytes", bytes.len())
        })?;
        let what = what.to_owned();
        Ok(Self { what, bytes })
    }

    /// As programs write bytes: hexadecimal, Base64 of both alphabets, a list, text of Rust.
    fn written(&self) -> [String; 6] {
        let mut hex = String::new();
        for byte in &self.bytes {
            let _ = write!(hex, "{byte:02x}");
        }
        let base64 = base64(&self.bytes);
        let list = format!("{:?}", self.bytes);
        let text = format!("{:?}", Bytes::copy_from_slice(&self.bytes));
        [
            hex.to_uppercase(),
            hex,
            base64.replace('+', "-").replace('/', "_"),
            base64,
            list.trim_matches(['[', ']']).to_owned(),
            text.trim_start_matches('b').trim_matches('"').to_owned(),
        ]
    }

    /// Whether it stands there, as it is or written in one of these ways.
    pub fn is_in(&self, said: &[u8]) -> bool {
        let text = String::from_utf8_lossy(said);
        self.written().iter().any(|form| text.contains(form))
            || said
                .windows(self.bytes.len())
                .any(|part| part == self.bytes)
    }

    /// Whether each way to write it would be found.
    pub fn would_be_found(&self) -> bool {
        let in_the_midst = |form: &[u8]| [&b"key="[..], form, b" of it\n"].concat();
        let mut all = self.written().map(String::into_bytes).to_vec();
        all.push(self.bytes.clone());
        all.iter().all(|form| self.is_in(&in_the_midst(form)))
    }
}

/// Without what fills it up at the end.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let mut three = [0; 4];
        three[1..=part.len()].copy_from_slice(part);
        let bits = u32::from_be_bytes(three);
        for digit in 0..=part.len() {
            let at = (bits >> (18 - 6 * digit)) & 63;
            out.push(char::from(DIGITS[at as usize]));
        }
    }
    out
}

/// The keys of a keytab, by Kerberos' own program.
fn keys_of(keytab: &Path) -> Result<Vec<Vec<u8>>> {
    let ran = Command::new("klist").arg("-kK").arg(keytab).output();
    let ran = ran.map_err(TestkitError::file("running", Path::new("klist")))?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let each = text.split("(0x").skip(1);
    let keys = each.filter_map(|rest| from_hex(rest.split_once(')')?.0));
    Ok(keys.collect())
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let each = (0..text.len()).step_by(2);
    each.map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

/// The keys that a NameNode tells nodes and balancers, with which all block tokens are made.
fn block_keys(namenode: String) -> Result<Vec<Bytes>> {
    let security = RpcSecurity {
        login: KerberosLogin::from(LoginSource::TicketCache),
        server: ServerPrincipal {
            key: "dfs.namenode.kerberos.principal",
            principal: Some(at_localhost("nn")),
            pattern: None,
        },
        qualities: [RpcQuality::Privacy].into(),
    };
    let options = RpcOptions {
        security: Some(security),
        ..RpcOptions::default()
    };
    let talk = |error: String| TestkitError::Talk(error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| talk(error.to_string()))?;
    // The answer has the form of the command that nodes get.
    let answer: KeyUpdateCommand = runtime
        .block_on(async {
            let client = RpcClient::new(namenode, NAMENODE_PROTOCOL, options);
            client.call("getBlockKeys", &VersionRequest {}).await
        })
        .map_err(|error| talk(error.to_string()))?;
    let keys = answer.keys;
    let all = keys.all_keys.into_iter().chain([keys.current_key]);
    let mut all: Vec<Bytes> = all.filter_map(|key| key.key_bytes).collect();
    all.retain(|key| !key.is_empty());
    all.sort();
    all.dedup();
    Ok(all)
}
