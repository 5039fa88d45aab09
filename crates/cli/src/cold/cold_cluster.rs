//! The cluster that is scanned and changed, or an image of it.

use std::path::Path;
use std::sync::Arc;

use hayloft_console::progress::{ProgressStep, say};

use super::age::Cutoff;
use super::ask_namenode::{ActiveNameNode, ArchiveSpace, PolicyNames, refused};
use super::cold_directories::DirTree;
use super::directory_uses::DirectoryUses;
use super::image::{self, Image};
use super::report;
use super::scan_listings::LiveScan;
use super::set_policies::{ChangeSums, PolicyChange, change_all};
use super::spool::Spool;
use super::undo::ColdTarget;
use crate::error::CliError;

/// The policy that is set: replicas on ARCHIVE storages alone.
pub const POLICY: &str = "COLD";
/// Its number in every Hadoop (`HdfsConstants.StoragePolicy.COLD`), for images without a NameNode.
const POLICY_NUMBER: u8 = 2;

/// The cluster whose namespace is looked at or changed.
#[derive(Debug)]
pub struct ColdCluster {
    /// Its active NameNode.
    pub namenode: Arc<ActiveNameNode>,
    /// The policies that it knows.
    pub names: PolicyNames,
    /// Number of the policy COLD.
    pub cold_policy: u8,
}

impl ColdCluster {
    /// The cluster of a NameNode that answers and knows the policy.
    ///
    /// # Errors
    /// It does not answer, or has no policies.
    pub async fn of(namenode: Arc<ActiveNameNode>) -> Result<Self, CliError> {
        let names = namenode.policies().await;
        let names = names.map_err(|e| refused("ask for storage policies", namenode.name(), &e))?;
        let cold_policy = names.number(POLICY).ok_or_else(|| {
            let advice = "set dfs.storage.policy.enabled on the NameNode";
            let what = "the NameNode knows no policy COLD";
            CliError::new(what, namenode.name(), advice).lasting()
        })?;
        Ok(Self {
            namenode,
            names,
            cold_policy,
        })
    }

    /// Looks at the living namespace below `path`, which [`LiveScan`] says more of.
    ///
    /// # Errors
    /// As that.
    pub async fn scan(
        &self,
        path: &str,
        cutoff: Cutoff,
        uses: Option<&DirectoryUses>,
        spool: Option<&mut Spool>,
    ) -> Result<DirTree, CliError> {
        let step = ProgressStep::spinner(format!("looking at {path}"));
        let told = |files: u64, dirs: u64| step.note(&format!("{files} files, {dirs} directories"));
        let scan = LiveScan {
            namenode: &self.namenode,
            cutoff,
            cold_policy: self.cold_policy,
            uses,
            spool,
            told: &told,
        };
        let tree = scan.run(path).await?;
        step.done(&report::seen(&tree));
        Ok(tree)
    }

    /// The place for cold files. There must be one: what is created in a directory of policy COLD
    /// would have none either.
    ///
    /// # Errors
    /// There is none, or the NameNode does not tell.
    pub async fn archive_space(&self) -> Result<ArchiveSpace, CliError> {
        let space = self.namenode.archive_space().await;
        let place = self.namenode.name();
        let space = space.map_err(|e| refused("ask for storages", place, &e))?;
        if space.storages == 0 {
            return Err(CliError::new(
                "no live DataNode has a storage of type ARCHIVE, and COLD allows no other",
                place,
                "add [ARCHIVE] directories to dfs.datanode.data.dir",
            ));
        }
        Ok(space)
    }

    /// Says when there is less place than one replica of cold files takes.
    ///
    /// # Errors
    /// As [`archive_space`](Self::archive_space).
    pub async fn check_archive(&self, bytes: u64) -> Result<(), CliError> {
        let space = self.archive_space().await?;
        if space.free < bytes {
            say(&format!(
                "warning: the ARCHIVE storages have {} free, and one replica of what is cold \
                 takes {}: the mover cannot move all of it",
                hayloft_console::size::show(space.free),
                hayloft_console::size::show(bytes)
            ));
        }
        Ok(())
    }

    /// Changes `count` targets.
    ///
    /// # Errors
    /// As [`change_all`].
    pub async fn change(
        &self,
        targets: impl Iterator<Item = Result<ColdTarget, CliError>>,
        count: u64,
        change: PolicyChange,
    ) -> Result<ChangeSums, CliError> {
        let step = ProgressStep::spinner("changing storage policies");
        let told = |done: u64| step.note(&format!("{done} of {count}"));
        let sums = change_all(&self.namenode, targets, &change, &told).await?;
        step.done(&format!("{} changed", sums.changed));
        Ok(sums)
    }
}

/// Looks at an image's namespace below `path`; none when it has no such directory.
///
/// # Errors
/// The image cannot be read, the spool is full.
pub fn scan_image(
    image: &Path,
    path: &str,
    cutoff: Cutoff,
    spool: Option<&mut Spool>,
) -> Result<Option<DirTree>, CliError> {
    let image = Image::open(image)?;
    let step = ProgressStep::bytes("reading the image", image.bytes_to_read());
    let told = |read: u64, whole: u64| step.at_of(read, whole);
    let tree = image::scan(&image, path, cutoff, POLICY_NUMBER, spool, &told)?;
    let seen = tree.as_ref().map(report::seen).unwrap_or_default();
    step.done(&seen);
    Ok(tree)
}
