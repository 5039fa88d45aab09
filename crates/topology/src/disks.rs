//! Whether the disks of a machine are its own, from `/sys/block`.
//!
//! A DataNode on a network disk writes each replica over the network twice, and two replicas may
//! end on one device. Models as these pages name them, recorded from no real machine but our own:
//! - AWS, "Instance store volumes" and "Amazon EBS volumes and NVMe": `Amazon EC2 NVMe Instance
//!   Storage`, `Amazon Elastic Block Store`;
//! - Google Cloud, "About Local SSD disks" and "Symbolic links of disks": vendor `Google` with
//!   `EphemeralDisk` or `PersistentDisk`, `nvme_card` or `nvme_card-pd`;
//! - Azure, "Overview of remote and local NVMe disks" and the udev rules of its agent: `Microsoft
//!   NVMe Direct Disk`, `MSFT NVMe Accelerator`, and the temporary disk by its VMBus device.

use std::path::Path;

use serde::Serialize;

use crate::files::small_file;

/// Block devices that are looked at: a node has a few dozen disks.
const DEVICES: usize = 4096;
/// Layers over other devices, and what is no disk.
const NOT_DISKS: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nullb"];
/// Devices whose data comes over the network, by name.
const NETWORK_NAMES: [&str; 3] = ["nbd", "rbd", "drbd"];

/// Where a disk's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskPlace {
    /// In this machine, or in the one that it runs on.
    Local,
    /// Behind a network.
    Network,
    /// Of a hypervisor that does not say.
    Virtual,
}

/// A disk, and why it is taken for local or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenDisk {
    /// `nvme0n1`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Where its data is.
    pub place: DiskPlace,
    /// Why.
    pub reason: String,
}

/// The disks below a `/sys`, by name. Removable, read-only and empty devices are none.
///
/// # Errors
/// Says why `block` cannot be listed.
pub fn seen_disks(sys: &Path) -> Result<Vec<SeenDisk>, String> {
    let dir = sys.join("block");
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(failed)?.take(DEVICES) {
        names.push(
            entry
                .map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    let names = names.into_iter();
    Ok(names
        .filter_map(|name| seen(&dir.join(&name), name))
        .collect())
}

fn seen(dir: &Path, name: String) -> Option<SeenDisk> {
    let digits = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let is = |prefix: &&str| name.strip_prefix(*prefix).is_some_and(digits);
    if NOT_DISKS.iter().any(&is) {
        return None;
    }
    let number = |file: &str| small_file(&dir.join(file)).ok()?.parse::<u64>().ok();
    let size = number("size")?.checked_mul(512)?;
    let no_disk = ["removable", "ro", "hidden"].map(number).contains(&Some(1));
    if size == 0 || no_disk {
        return None;
    }
    let (place, reason) = match NETWORK_NAMES.iter().any(is) {
        true => (DiskPlace::Network, "a network block device".to_owned()),
        false => place_of(dir, &name),
    };
    Some(SeenDisk {
        name,
        size,
        place,
        reason,
    })
}

/// Rules of models and buses, the plainest first.
fn place_of(dir: &Path, name: &str) -> (DiskPlace, String) {
    let text = |file: &str| small_file(&dir.join("device").join(file)).unwrap_or_default();
    let (vendor, model) = (text("vendor"), text("model"));
    let known = [
        ("Amazon EC2 NVMe Instance Storage", DiskPlace::Local),
        ("Amazon Elastic Block Store", DiskPlace::Network),
        ("EphemeralDisk", DiskPlace::Local),
        ("PersistentDisk", DiskPlace::Network),
        ("nvme_card-pd", DiskPlace::Network),
        ("nvme_card", DiskPlace::Local),
        ("Microsoft NVMe Direct Disk", DiskPlace::Local),
        ("MSFT NVMe Accelerator", DiskPlace::Network),
    ];
    if let Some((_, place)) = known.iter().find(|(known, _)| model.starts_with(known)) {
        return (*place, format!("its model is {model}"));
    }
    let path = dir.join("device").canonicalize().unwrap_or_default();
    let path = path.to_string_lossy().into_owned();
    if vendor == "Msft" {
        return match is_azure_temporary(&path) {
            true => (DiskPlace::Local, "Azure's temporary disk".to_owned()),
            false => (DiskPlace::Network, "a disk of Azure or Hyper-V".to_owned()),
        };
    }
    let shown = format!("{vendor} {model}").trim().to_owned();
    let makers = ["QEMU", "VMware", "VBOX", "Xen", "Virtual"];
    let emulated = makers.iter().any(|maker| shown.contains(maker));
    if name.starts_with("nvme") {
        let transport = transport(&dir.join("device"));
        return match transport.as_str() {
            "tcp" | "rdma" | "fc" => (DiskPlace::Network, format!("NVMe over {transport}")),
            _ if emulated => (DiskPlace::Virtual, format!("emulated: {shown}")),
            _ => (DiskPlace::Local, format!("NVMe in this machine: {shown}")),
        };
    }
    if path.contains("/session") || path.contains("/rport-") {
        return (
            DiskPlace::Network,
            format!("iSCSI or Fibre Channel: {shown}"),
        );
    }
    if emulated || path.contains("/virtio") || name.starts_with("vd") || name.starts_with("xvd") {
        return (
            DiskPlace::Virtual,
            "the hypervisor does not say where it is".to_owned(),
        );
    }
    if vendor == "ATA" || path.contains("/ata") || path.contains("/end_device-") {
        return (DiskPlace::Local, format!("SATA or SAS: {shown}"));
    }
    (DiskPlace::Virtual, format!("of no known kind: {shown}"))
}

/// How an NVMe disk is reached. With several paths, the controllers below its subsystem say it.
fn transport(device: &Path) -> String {
    let of = |dir: &Path| small_file(&dir.join("transport")).ok();
    let below = || {
        let entries = std::fs::read_dir(device).ok()?;
        entries
            .flatten()
            .take(DEVICES)
            .find_map(|entry| of(&entry.path()))
    };
    of(device).or_else(below).unwrap_or_default()
}

/// The second channel of the old machines' controller; LUN 1 of the newer ones' first controller.
fn is_azure_temporary(path: &str) -> bool {
    let old = path.contains("/00000000-0001-");
    old || (path.contains("/f8b3781a-1e82-4818-a1c3-63d806ec15bb/") && path.ends_with(":1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A disk below a made `/sys`: its device lies at `bus`, as the kernel links it.
    fn disk(sys: &Path, name: &str, bus: &str, files: &[(&str, &str)]) {
        let device = sys.join("devices").join(bus);
        let block = sys.join("block").join(name);
        fs::create_dir_all(&device).expect("made");
        fs::create_dir_all(&block).expect("made");
        fs::write(block.join("size"), "2048\n").expect("written");
        fs::write(block.join("removable"), "0\n").expect("written");
        for (file, text) in files {
            fs::write(device.join(file), text).expect("written");
        }
        std::os::unix::fs::symlink(&device, block.join("device")).expect("linked");
    }

    /// Name, bus, files of the device, and where it is.
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], DiskPlace);

    #[test]
    fn disks_of_clouds_and_machines_are_told_apart() {
        use DiskPlace::{Local, Network, Virtual};
        let azure = "VMBUS:00/f8b3781a-1e82-4818-a1c3-63d806ec15bb/host0/target0:0:0";
        let azure = [format!("{azure}/0:0:0:0"), format!("{azure}/0:0:0:1")];
        let scsi = [("vendor", "Msft"), ("model", "Virtual Disk")];
        let cases: [Case<'_>; 16] = [
            (
                "nvme0n1",
                "pci/n0",
                &[("model", "Amazon Elastic Block Store  ")],
                Network,
            ),
            (
                "nvme1n1",
                "pci/n1",
                &[("model", "Amazon EC2 NVMe Instance Storage ")],
                Local,
            ),
            ("nvme2n1", "pci/n2", &[("model", "nvme_card-pd")], Network),
            ("nvme3n1", "pci/n3", &[("model", "nvme_card7")], Local),
            (
                "nvme4n1",
                "fab/n4",
                &[("model", "X"), ("transport", "tcp")],
                Network,
            ),
            (
                "nvme5n1",
                "pci/n5",
                &[("model", "SAMSUNG"), ("transport", "pcie")],
                Local,
            ),
            (
                "nvme6n1",
                "pci/n6",
                &[("model", "Microsoft NVMe Direct Disk v2")],
                Local,
            ),
            (
                "sda",
                "v/s1",
                &[("vendor", "Google"), ("model", "PersistentDisk")],
                Network,
            ),
            ("sdb", &azure[0], &scsi, Network),
            ("sdc", &azure[1], &scsi, Local),
            (
                "sdd",
                "p/session1/t",
                &[("vendor", "LIO-ORG"), ("model", "d")],
                Network,
            ),
            (
                "sde",
                "p/ata3/host2",
                &[("vendor", "ATA"), ("model", "WDC")],
                Local,
            ),
            (
                "sdf",
                "p/ata4/h",
                &[("vendor", "ATA"), ("model", "QEMU HARDDISK")],
                Virtual,
            ),
            ("vda", "pci/virtio2", &[], Virtual),
            ("nvme7n1", "subsystem", &[("model", "X")], Network),
            ("nbd0", "virtual/nbd0", &[], Network),
        ];
        let sys = tempfile::tempdir().expect("a directory");
        for (name, bus, files, _) in &cases {
            disk(sys.path(), name, bus, files);
        }
        // Several paths to one disk: the controllers below it say how.
        let path = sys.path().join("devices/subsystem/nvme8");
        fs::create_dir_all(&path).expect("made");
        fs::write(path.join("transport"), "rdma\n").expect("written");
        disk(sys.path(), "loop0", "virtual/l", &[]);
        disk(sys.path(), "sdz", "usb", &[]);
        fs::write(sys.path().join("block/sdz/size"), "0\n").expect("written");
        let seen = seen_disks(sys.path()).expect("listed");
        let mut wanted: Vec<_> = cases
            .iter()
            .map(|(name, _, _, place)| (*name, *place))
            .collect();
        wanted.sort_by_key(|(name, _)| *name);
        let seen: Vec<_> = seen
            .iter()
            .map(|disk| (disk.name.as_str(), disk.place))
            .collect();
        assert_eq!(seen, wanted);
    }

    #[test]
    fn no_sys_is_an_error() {
        assert!(seen_disks(Path::new("/no/such")).is_err());
    }
}
