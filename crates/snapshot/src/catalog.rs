//! What a store has: nodes, their snapshots, and the objects of blocks.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use opendal::ErrorKind;
use serde::Serialize;

use crate::error::SnapshotError;
use crate::manifest::{
    END_BYTES_MAX, HEADER_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest, ManifestError, ManifestHeader,
};
use crate::names::{BLOCKS, BlockName, MANIFESTS, folder, is_node, taken_at};
use crate::target::Target;

/// Objects of a node that are looked at, at most: two a replica.
const OBJECTS_MAX: usize = 16_000_000;
/// Snapshots of a node, and nodes below a prefix, that are looked at.
const SNAPSHOTS_MAX: usize = 100_000;

/// A snapshot as it is listed: what its first line says.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotListed {
    /// Uuid of the node.
    pub node: String,
    /// Its name, which has its time.
    pub name: String,
    /// When it began, in milliseconds since 1970.
    pub taken_ms: u64,
    /// Cluster of the node.
    pub cluster_id: String,
    /// Host that it was taken on.
    pub host: String,
    /// Replicas.
    pub replicas: u64,
    /// Bytes of data and meta files.
    pub bytes: u64,
    /// Why it cannot be used, if that shows in its first line or its last.
    pub problem: Option<String>,
}

/// Whether a folder is a node's: it has snapshots, or blocks at least.
async fn is_there(target: &Target, node: &str) -> Result<bool, SnapshotError> {
    let names = names_below(target, &format!("{node}/")).await?;
    let of_node = |name: &str| name == MANIFESTS || name == BLOCKS;
    Ok(names.iter().any(|name| of_node(name.trim_end_matches('/'))))
}

/// The uuids of the nodes that have folders, or the one that is named.
///
/// # Errors
/// It is no name of a node, which could lead out of the prefix, or has no folder; of the store.
pub async fn nodes(target: &Target, node: Option<&str>) -> Result<Vec<String>, SnapshotError> {
    if let Some(node) = node {
        let advice = "'hayloft snapshot list' without --node names those that are there";
        if !is_node(node) {
            let what = "this is no uuid of a node";
            return Err(SnapshotError::environment(what, node, advice));
        }
        if !is_there(target, node).await? {
            return Err(none_here(target, node));
        }
        return Ok(vec![node.to_owned()]);
    }
    let mut nodes = Vec::new();
    for name in names_below(target, "").await? {
        if let Some(node) = name.strip_suffix('/').filter(|name| is_node(name))
            && is_there(target, node).await?
        {
            nodes.push(node.to_owned());
        }
    }
    // Directories list their entries in any order.
    nodes.sort_unstable();
    Ok(nodes)
}

/// The names of a node's snapshots, the oldest first.
pub async fn snapshots(target: &Target, node: &str) -> Result<Vec<String>, SnapshotError> {
    let names = names_below(target, &folder(node, MANIFESTS)).await?;
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|n| taken_at(n).is_some())
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// What lies in a folder, by its names there; folders end in a slash.
pub async fn names_below(target: &Target, folder: &str) -> Result<Vec<String>, SnapshotError> {
    let failed = |e| SnapshotError::of_store("list objects", &target.at(folder), &e);
    let mut lister = match target.operator().lister(folder).await {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        lister => lister.map_err(failed)?,
    };
    let mut names = Vec::new();
    while let Some(entry) = next(&mut lister).await.map_err(failed)? {
        // The folder itself is listed, too.
        if let Some(name) = entry.path().strip_prefix(folder)
            && !name.is_empty()
            && name != "/"
        {
            names.push(name.to_owned());
        }
        if names.len() > SNAPSHOTS_MAX {
            return Err(too_many(target, folder));
        }
    }
    Ok(names)
}

/// The next entry; a folder that is not there, or not any more, has none.
async fn next(lister: &mut opendal::Lister) -> opendal::Result<Option<opendal::Entry>> {
    match lister.try_next().await {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        entry => entry,
    }
}

fn too_many(target: &Target, folder: &str) -> SnapshotError {
    SnapshotError::finding(
        "there are more objects than can be looked at",
        target.at(folder),
        "remove old snapshots by 'hayloft snapshot prune', or use another prefix",
    )
}

/// Where a snapshot is.
pub fn path_of(node: &str, snapshot: &str) -> String {
    format!("{}{snapshot}", folder(node, MANIFESTS))
}

/// Lists the snapshots below the prefix, of one node or of all, the oldest of each node first.
///
/// # Errors
/// Of the store. A snapshot that cannot be used is listed with why.
pub async fn list(
    target: &Target,
    node: Option<&str>,
) -> Result<Vec<SnapshotListed>, SnapshotError> {
    let mut all = Vec::new();
    for node in nodes(target, node).await? {
        for name in snapshots(target, &node).await? {
            all.extend(look_at(target, &node, name).await?);
        }
    }
    Ok(all)
}

/// What the ends of a snapshot say; nothing when it was pruned meanwhile.
async fn look_at(
    target: &Target,
    node: &str,
    name: String,
) -> Result<Option<SnapshotListed>, SnapshotError> {
    let path = path_of(node, &name);
    let read = async {
        let len = target.operator().stat(&path).await?.content_length();
        let most = len.min(HEADER_BYTES_MAX as u64 + 1);
        if most == 0 {
            return Ok::<_, opendal::Error>((Bytes::new(), Bytes::new()));
        }
        let operator = target.operator();
        let first = operator.read_with(&path).range(0..most).await?;
        let last = len.saturating_sub(END_BYTES_MAX)..len;
        let last = operator.read_with(&path).range(last).await?;
        Ok((first.to_bytes(), last.to_bytes()))
    };
    let (first, last) = match read.await {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        ends => {
            ends.map_err(|e| SnapshotError::of_store("read a manifest", &target.at(&path), &e))?
        }
    };
    let header = ManifestHeader::parse(&first).map_err(|e| e.to_string());
    let header = header.and_then(|header| match header.datanode_uuid == node {
        true => Ok(header),
        false => Err(format!("it is of the node {}", header.datanode_uuid)),
    });
    let problem = match &header {
        Ok(header) if header.is_ended_by(&last) => None,
        Ok(_) => Some("its end is missing".to_owned()),
        Err(why) => Some(why.clone()),
    };
    let header = header.ok();
    let text = |of: fn(&ManifestHeader) -> &String| header.as_ref().map(of).cloned();
    Ok(Some(SnapshotListed {
        node: node.to_owned(),
        taken_ms: taken_at(&name).unwrap_or(0),
        name,
        cluster_id: text(|h| &h.cluster_id).unwrap_or_default(),
        host: text(|h| &h.host).unwrap_or_default(),
        replicas: header.as_ref().map_or(0, |h| h.replicas),
        bytes: header.as_ref().map_or(0, |h| h.bytes),
        problem,
    }))
}

/// Reads a snapshot and compares it with its own checksum.
pub async fn manifest(
    target: &Target,
    node: &str,
    snapshot: &str,
) -> Result<Manifest, SnapshotError> {
    let path = path_of(node, snapshot);
    let refuse =
        |what: String, advice: &str| Err(SnapshotError::finding(what, target.at(&path), advice));
    let Some(bytes) = target.read(&path, MANIFEST_BYTES_MAX).await? else {
        return refuse(
            "there is no such snapshot".to_owned(),
            "'hayloft snapshot list' names those that are there",
        );
    };
    let manifest = match Manifest::parse(&bytes) {
        Err(error @ ManifestError::Version(_)) => {
            return refuse(
                format!("the snapshot cannot be used: {error}"),
                "or use another",
            );
        }
        Err(error) => {
            return refuse(
                format!("the snapshot cannot be used: {error}"),
                "use another one with --snapshot, and remove this object",
            );
        }
        Ok(manifest) => manifest,
    };
    let owner = &manifest.header.datanode_uuid;
    if owner != node {
        return refuse(
            format!("the snapshot is of the node {owner}"),
            "it was moved here: use another one with --snapshot",
        );
    }
    Ok(manifest)
}

/// The one snapshot that is meant: of the named node or the only one there, the named one or the
/// newest.
pub async fn choose(
    target: &Target,
    node: Option<&str>,
    snapshot: Option<&str>,
) -> Result<(String, String), SnapshotError> {
    let mut found = Vec::new();
    for node in nodes(target, node).await? {
        let known = snapshots(target, &node).await?;
        if !known.is_empty() {
            found.push((node, known));
        }
    }
    if found.len() > 1 {
        let nodes: Vec<String> = found.into_iter().map(|(node, _)| node).collect();
        let what = "snapshots of several nodes are here";
        let advice = format!("name one by --node: {}", nodes.join(", "));
        return Err(SnapshotError::environment(what, target.at(""), advice));
    }
    let Some((node, known)) = found.pop() else {
        return Err(none_here(target, node.unwrap_or_default()));
    };
    let chosen = match snapshot {
        Some(name) => known.into_iter().find(|known| known == name),
        None => known.into_iter().next_back(),
    };
    match chosen {
        Some(chosen) => Ok((node, chosen)),
        None => Err(none_here(target, &node)),
    }
}

fn none_here(target: &Target, folder: &str) -> SnapshotError {
    SnapshotError::finding(
        "there is no such snapshot",
        target.at(folder),
        "'hayloft snapshot list' names those that are there; 'create' makes one",
    )
}

/// Bytes of the two objects of a replica, of those that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Of its data.
    pub data: Option<u64>,
    /// Of its meta file.
    pub meta: Option<u64>,
}

/// The objects of a node's blocks.
pub async fn stored(
    target: &Target,
    node: &str,
) -> Result<HashMap<BlockName, Stored>, SnapshotError> {
    let mut all: HashMap<BlockName, Stored> = HashMap::new();
    let dir = folder(node, BLOCKS);
    let failed = |e| SnapshotError::of_store("list objects", &target.at(&dir), &e);
    let lister = target.operator().lister_with(&dir).recursive(true).await;
    let mut lister = match lister {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(all),
        lister => lister.map_err(failed)?,
    };
    while let Some(entry) = next(&mut lister).await.map_err(failed)? {
        let Some((name, is_meta)) = BlockName::parse(node, entry.path()) else {
            continue;
        };
        let len = match entry.metadata().content_length() {
            // A directory does not tell lengths in its list.
            0 => match target.operator().stat(entry.path()).await {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                stat => stat.map_err(failed)?.content_length(),
            },
            len => len,
        };
        let of = all.entry(name).or_default();
        let which = if is_meta { &mut of.meta } else { &mut of.data };
        *which = Some(len);
        if all.len() > OBJECTS_MAX / 2 {
            return Err(too_many(target, &dir));
        }
    }
    Ok(all)
}
