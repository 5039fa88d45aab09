//! From a scan to the targets: wholly cold directories, and the cold files beside them.

use std::path::Path;
use std::sync::Arc;

use hayloft_rpc::RpcError;
use hayloft_wire::proto::file_status::{FileType, HdfsFileStatus};

use super::age::Cutoff;
use super::ask_namenode::{ActiveNameNode, PolicyNames, refused};
use super::cold_directories::DirTree;
use super::scan_listings::{self, LiveScan};
use super::spool::{Spool, SpooledFile, unspooled};
use super::undo::ColdTarget;
use crate::error::CliError;

/// What a plan finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planned {
    /// A directory or a file that is to be given the policy.
    Target {
        /// It, and what it has now.
        target: ColdTarget,
        /// Cold files in it.
        files: u64,
        /// Their lengths, bytes.
        bytes: u64,
    },
    /// A file of policy COLD that was used since the cutoff.
    Reread {
        /// Its directory.
        dir: String,
        /// Its path.
        path: String,
        /// When it was last used, milliseconds since 1970.
        used_ms: u64,
    },
}

/// Takes what a plan finds.
pub type PlanSink<'a> = dyn FnMut(Planned) -> Result<(), CliError> + 'a;

/// What targets are found with.
pub struct Planner<'a> {
    /// Who is asked.
    pub namenode: &'a Arc<ActiveNameNode>,
    /// Its policies.
    pub names: &'a PolicyNames,
    /// Number of the policy COLD.
    pub cold_policy: u8,
    /// What is cold.
    pub cutoff: Cutoff,
    /// Where spools go.
    pub spool_dir: &'a Path,
    /// Hears of files and directories looked at again.
    pub told: &'a dyn Fn(u64, u64),
}

impl Planner<'_> {
    /// The targets of a scan of the living namespace.
    ///
    /// # Errors
    /// The spool or the sink fails, or the NameNode does.
    pub async fn of_live(
        &self,
        tree: &DirTree,
        spool: Spool,
        sink: &mut PlanSink<'_>,
    ) -> Result<(), CliError> {
        let above = self.policy_above(tree.at(0).name.as_ref()).await?;
        for dir in tree.numbers().filter(|dir| tree.is_target(*dir)) {
            let found = tree.at(dir);
            let inherited = if dir == 0 {
                above
            } else {
                tree.at(found.parent).policy
            };
            let before = self.own(found.policy, inherited, &tree.path(dir))?;
            sink(Planned::Target {
                target: ColdTarget {
                    path: tree.path(dir),
                    directory: true,
                    before,
                    seen_policy: Some(found.policy),
                },
                files: found.sums.cold_files,
                bytes: found.sums.cold_bytes,
            })?;
        }
        let files = spool.into_files().map_err(|e| unspooled(&e))?;
        for file in files {
            let file = file.map_err(|e| unspooled(&e))?;
            if self.is_reread(tree, &file, sink)? || tree.covered_by(file.dir).is_some() {
                continue;
            }
            let path = join(&tree.path(file.dir), &file.name);
            let before = self.own(file.policy, tree.at(file.dir).policy, &path)?;
            sink(of_file(path, before, file.policy, file.len))?;
        }
        Ok(())
    }

    /// The targets of a scan of an image, each looked at again in the living namespace: what was
    /// used since the image was saved is no target.
    ///
    /// # Errors
    /// As [`of_live`](Self::of_live).
    pub async fn of_image(
        &self,
        tree: &DirTree,
        spool: Spool,
        sink: &mut PlanSink<'_>,
    ) -> Result<(), CliError> {
        for dir in tree.numbers().filter(|dir| tree.is_target(*dir)) {
            let path = tree.path(dir);
            let now = self.look(&path).await?;
            if now.is_none_or(|now| now.file_type() != FileType::IsDir) {
                continue;
            }
            let mut again = Spool::create(self.spool_dir).map_err(|e| unspooled(&e))?;
            let scan = LiveScan {
                namenode: self.namenode,
                cutoff: self.cutoff,
                cold_policy: self.cold_policy,
                uses: None,
                spool: Some(&mut again),
                told: self.told,
            };
            let living = scan.run(&path).await?.limited(tree.leaf_limit());
            self.of_live(&living, again, sink).await?;
        }
        let files = spool.into_files().map_err(|e| unspooled(&e))?;
        let mut last_dir = None;
        for file in files {
            let file = file.map_err(|e| unspooled(&e))?;
            if self.is_reread(tree, &file, sink)? || tree.covered_by(file.dir).is_some() {
                continue;
            }
            let dir_policy = match last_dir {
                Some((dir, policy)) if dir == file.dir => policy,
                _ => {
                    let now = self.look(&tree.path(file.dir)).await?;
                    let policy = now.as_ref().map_or(0, scan_listings::policy_of);
                    last_dir = Some((file.dir, policy));
                    policy
                }
            };
            let path = join(&tree.path(file.dir), &file.name);
            let now = self.look(&path).await?;
            let Some(now) = now.filter(|now| self.is_still_cold(now)) else {
                continue;
            };
            let policy = scan_listings::policy_of(&now);
            let before = self.own(policy, dir_policy, &path)?;
            sink(of_file(path, before, policy, file.len))?;
        }
        Ok(())
    }

    /// Whether a file has the policy already and was used; the sink hears of it.
    fn is_reread(
        &self,
        tree: &DirTree,
        file: &SpooledFile,
        sink: &mut PlanSink<'_>,
    ) -> Result<bool, CliError> {
        let reread = file.policy == self.cold_policy;
        if reread {
            let dir = tree.path(file.dir);
            let path = join(&dir, &file.name);
            let used_ms = file.used_ms;
            sink(Planned::Reread { dir, path, used_ms })?;
        }
        Ok(reread)
    }

    fn is_still_cold(&self, now: &HdfsFileStatus) -> bool {
        let file = scan_listings::scanned(now);
        now.file_type() == FileType::IsFile
            && file.policy != self.cold_policy
            && self.cutoff.is_cold(file.modified_ms, file.accessed_ms)
    }

    async fn look(&self, path: &str) -> Result<Option<HdfsFileStatus>, CliError> {
        let failed = |error: RpcError| refused("look at it", path, &error);
        self.namenode.status(path).await.map_err(failed)
    }

    /// The policy that the directory above `path` has; 0 above `/`.
    async fn policy_above(&self, path: &str) -> Result<u8, CliError> {
        let Some((above, _)) = path.trim_end_matches('/').rsplit_once('/') else {
            return Ok(0);
        };
        let above = if above.is_empty() { "/" } else { above };
        let now = self.look(above).await?;
        Ok(now.as_ref().map_or(0, scan_listings::policy_of))
    }

    /// The name of the policy of its own that a path with the policy `now` has, below a directory
    /// with the policy `inherited`. A NameNode tells no more. Where both are the same, taking the
    /// path's own away again leaves it what it had.
    fn own(&self, now: u8, inherited: u8, path: &str) -> Result<Option<String>, CliError> {
        if now == inherited || now == 0 {
            return Ok(None);
        }
        let name = self.names.name(now).map(str::to_owned);
        name.map(Some).ok_or_else(|| {
            let what = format!("it has the storage policy {now}, which the NameNode does not name");
            CliError::new(what, path, "set another one by hand first")
        })
    }
}

fn of_file(path: String, before: Option<String>, policy: u8, len: u64) -> Planned {
    Planned::Target {
        target: ColdTarget {
            path,
            directory: false,
            before,
            seen_policy: Some(policy),
        },
        files: 1,
        bytes: len,
    }
}

fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_below_the_root_too() {
        assert_eq!(
            (join("/", "a"), join("/b", "a")),
            ("/a".into(), "/b/a".into())
        );
    }
}
