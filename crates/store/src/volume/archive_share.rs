//! A DISK and an ARCHIVE volume on one mount (HDFS-15548, HDFS-15683): each has a share of its
//! capacity, and a replica goes from one to the other by a hard link.

use std::sync::{Arc, Mutex, Weak};

use hayloft_io::locks;
use hayloft_wire::ids::StorageType;

use super::Volume;
use super::space_told::MountShare;

/// A mount on which volumes of both types may be.
#[derive(Debug)]
pub struct SharedMount {
    /// Share of ARCHIVE, 0.0 to 1.0, where no volume has one of its own.
    archive_share: f64,
    volumes: Mutex<Vec<Weak<Volume>>>,
}

/// Whether volumes of this type share mounts.
fn may_share(kind: StorageType) -> bool {
    matches!(kind, StorageType::Disk | StorageType::Archive)
}

impl SharedMount {
    /// The mount of a volume that comes to those `present`, when mounts are shared at all.
    ///
    /// # Errors
    /// One of its type is on the mount, or the shares are more than the whole, in Apache's words.
    pub fn find(
        archive_share: Option<f64>,
        volume: &Volume,
        present: &[Arc<Volume>],
    ) -> Result<Option<Arc<Self>>, String> {
        let kind = volume.info.storage_type;
        let Some(archive_share) = archive_share.filter(|_| may_share(kind)) else {
            return Ok(None);
        };
        let mount = &volume.mount;
        if mount.as_os_str().is_empty() {
            return Ok(None);
        }
        let shares = |v: &&Arc<Volume>| v.shared_mount.is_some() && v.mount == *mount;
        let beside: Vec<&Arc<Volume>> = present.iter().filter(shares).collect();
        if beside.iter().any(|v| v.info.storage_type == kind) {
            return Err(format!(
                "Storage type {kind} already exists on same mount: {}",
                mount.display()
            ));
        }
        let set: f64 = beside.iter().filter_map(|v| v.capacity_ratio).sum();
        if let Some(ratio) = volume.capacity_ratio.filter(|ratio| 1.0 - set < *ratio) {
            return Err(format!(
                "Not enough capacity ratio left on mount: {}, capacity ratio: {ratio}",
                mount.display()
            ));
        }
        let known = beside.first().and_then(|v| v.shared_mount.clone());
        Ok(Some(known.unwrap_or_else(|| {
            Arc::new(Self {
                archive_share,
                volumes: Mutex::default(),
            })
        })))
    }

    /// Counts a volume in.
    pub fn join(&self, volume: &Arc<Volume>) {
        let mut volumes = locks::lock(&self.volumes);
        volumes.retain(|v| v.strong_count() > 0);
        volumes.push(Arc::downgrade(volume));
    }

    /// The healthy volume of the other type.
    pub fn partner(&self, of: &Volume) -> Option<Arc<Volume>> {
        let volumes = locks::lock(&self.volumes);
        let mut others = volumes.iter().filter_map(Weak::upgrade);
        others.find(|v| v.info.storage_type != of.info.storage_type && !v.is_failed())
    }

    /// The share of the mount's capacity that a volume has: its own where it is set, what the other
    /// leaves where that is set, else by the default, and all of it for a volume that is alone.
    pub fn ratio(&self, of: &Volume) -> f64 {
        let partner = self.partner(of);
        let of_partner = partner.as_ref().and_then(|partner| partner.capacity_ratio);
        match (of.capacity_ratio, of_partner, partner) {
            (Some(ratio), ..) => ratio,
            (None, Some(ratio), _) => 1.0 - ratio,
            (None, None, None) => 1.0,
            (None, None, Some(_)) if of.info.storage_type == StorageType::Archive => {
                self.archive_share
            }
            (None, None, Some(_)) => 1.0 - self.archive_share,
        }
    }
}

impl Volume {
    /// What it has of a mount that it shares with the volume of the other type.
    pub(super) fn mount_share(&self) -> MountShare {
        let Some(shared) = &self.shared_mount else {
            return MountShare::default();
        };
        let beside = shared.partner(self);
        let not_taken = |v: &Volume| {
            let (all, allocated) = (v.reserved_for_replicas.get(), v.allocated.get());
            all.saturating_sub(allocated)
        };
        MountShare {
            ratio: shared.ratio(self),
            taken_beside: beside.as_deref().map_or(0, Self::taken),
            not_taken_beside: beside.as_deref().map_or(0, not_taken),
        }
    }
}
