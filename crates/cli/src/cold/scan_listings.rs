//! The scan of a living namespace: listings, a page at a time, several directories at once.

use std::sync::Arc;

use bytes::Bytes;
use hayloft_rpc::RpcError;
use hayloft_wire::proto::file_status::{FileType, HdfsFileStatus};
use hayloft_wire::proto::namespace::DirectoryListing;
use tokio::task::JoinSet;

use super::age::Cutoff;
use super::ask_namenode::{ActiveNameNode, refused};
use super::cold_directories::DirTree;
use super::directory_uses::DirectoryUses;
use super::scanned_file::{FileClass, ScannedFile};
use super::spool::{Spool, unspooled};
use crate::error::CliError;

/// Listings under way at once. A NameNode has 10 handlers by default, and others want them too.
const LISTINGS_MAX: usize = 4;

/// What a listing comes back with: which directory, and the answer.
type Listed = (u32, Result<Option<DirectoryListing>, RpcError>);

/// A scan of what is below one path.
pub struct LiveScan<'a> {
    /// Who is asked.
    pub namenode: &'a Arc<ActiveNameNode>,
    /// What is cold.
    pub cutoff: Cutoff,
    /// Number of the policy COLD.
    pub cold_policy: u8,
    /// Tells when files were last read, where their access times may not.
    pub uses: Option<&'a DirectoryUses>,
    /// Where go files that are cold, or have the policy and were used.
    pub spool: Option<&'a mut Spool>,
    /// Hears of files and directories seen.
    pub told: &'a dyn Fn(u64, u64),
}

impl LiveScan<'_> {
    /// Looks at all files below the directory `path`, sums them up, and spools the cold ones.
    ///
    /// What is renamed or deleted meanwhile is counted where it was seen, or not at all.
    ///
    /// # Errors
    /// There is no such directory, the NameNode refuses, the spool is full.
    pub async fn run(mut self, path: &str) -> Result<DirTree, CliError> {
        let failed = |error: &RpcError| refused("look at a directory", path, error);
        let first = self.namenode.status(path).await.map_err(|e| failed(&e))?;
        let first = first.filter(|status| status.file_type() == FileType::IsDir);
        let first = first.ok_or_else(|| {
            CliError::new("no such directory", path, "give a directory of the cluster")
        })?;
        let mut tree = DirTree::new(
            path,
            policy_of(&first),
            first.modification_time,
            self.cutoff,
            self.cold_policy,
        );
        let mut ahead = vec![(0, Bytes::new())];
        let mut under_way: JoinSet<Listed> = JoinSet::new();
        let mut files = 0;
        loop {
            while under_way.len() < LISTINGS_MAX
                && let Some((dir, after)) = ahead.pop()
            {
                let (namenode, path) = (Arc::clone(self.namenode), tree.path(dir));
                under_way.spawn(async move { (dir, namenode.list(&path, &after).await) });
            }
            let Some(listed) = under_way.join_next().await else {
                break;
            };
            let (dir, listing) = listed
                .map_err(|error| CliError::new(format!("a listing ended: {error}"), path, ""))?;
            let listing = listing.map_err(|e| refused("list", &tree.path(dir), &e))?;
            // Deleted meanwhile.
            let Some(listing) = listing else { continue };
            files += self.take(dir, &listing, &mut tree, &mut ahead)?;
            (self.told)(files, tree.len() as u64);
        }
        tree.sum_up();
        Ok(tree)
    }

    /// Takes a page into the tree, and what has to be listed next; returns the files in it.
    fn take(
        &mut self,
        dir: u32,
        page: &DirectoryListing,
        tree: &mut DirTree,
        ahead: &mut Vec<(u32, Bytes)>,
    ) -> Result<u64, CliError> {
        let mut files = 0;
        let mut below = Vec::new();
        let read_ms = self.uses.map(|uses| {
            let path = tree.path(dir);
            (uses.known_use(&path), uses.last_use(&path))
        });
        for status in &page.partial_listing {
            let name = std::str::from_utf8(&status.path)
                .map_err(|_| CliError::new("a name is not UTF-8", tree.path(dir), ""))?;
            match status.file_type() {
                FileType::IsDir => below.push((name, status)),
                FileType::IsFile => {
                    files += 1;
                    let mut file = scanned(status);
                    if let Some((known_ms, latest_ms)) = read_ms {
                        // What is not known keeps a file where it is: it brings none back.
                        let is_archived = file.policy == self.cold_policy;
                        let read_ms = if is_archived { known_ms } else { latest_ms };
                        file.accessed_ms = file.accessed_ms.max(read_ms);
                    }
                    if matches!(
                        tree.add_file(dir, &file),
                        FileClass::Cold | FileClass::Reread
                    ) && let Some(spool) = &mut self.spool
                    {
                        let kept = spool.push(dir, &file, tree.used_ms(&file), name);
                        kept.map_err(|error| unspooled(&error))?;
                    }
                }
                FileType::IsSymlink => {}
            }
        }
        // The rest of this one first, while its names are fresh; then what is below it. A page
        // without a name says nothing to go on from.
        for (name, status) in below {
            let added = tree.add_dir(dir, name, policy_of(status), status.modification_time);
            let number = added.map_err(|what| CliError::new(what, "", "scan a part of it"))?;
            ahead.push((number, Bytes::new()));
        }
        if let Some(last) = page
            .partial_listing
            .last()
            .filter(|_| page.remaining_entries > 0)
        {
            ahead.push((dir, last.path.clone()));
        }
        Ok(files)
    }
}

/// The policy that counts for a path, 0 for none.
pub fn policy_of(status: &HdfsFileStatus) -> u8 {
    u8::try_from(status.storage_policy()).unwrap_or(0)
}

/// A file of a listing. A file that is being written was changed when it was opened, so it is not
/// told apart here: one that is kept open longer than files need to become cold is cold.
pub fn scanned(status: &HdfsFileStatus) -> ScannedFile {
    ScannedFile {
        len: status.length,
        modified_ms: status.modification_time,
        accessed_ms: status.access_time,
        policy: policy_of(status),
        open: false,
    }
}
