//! What a hypervisor's administrator tells a guest through its firmware.
//!
//! No hypervisor names its machine by itself: `/sys/hypervisor/uuid` and `product_uuid` under
//! `/sys/class/dmi/id` name the guest. So the administrator sets a text, by one of these:
//! - QEMU's `fw_cfg` ("QEMU Firmware Configuration (fw_cfg) Device" and `-fw_cfg` in QEMU's
//!   documentation; the kernel's ABI page sysfs-firmware-qemu_fw_cfg): `opt/io.hayloft/host` and
//!   `opt/io.hayloft/rack`;
//! - the SMBIOS asset tag of chassis or board (`-smbios type=3,asset=...`; libvirt's "SMBIOS System
//!   Information"): `hayloft host=NAME rack=/RACK`, either word alone, too.

use std::path::{Path, PathBuf};

use crate::files::small_file;
use crate::http::HttpAsker;
use crate::name::{RackPath, SafeName};
use crate::place::Whereabouts;
use crate::source::{SourceSilence, TopologySource, named};

const FW_CFG: &str = "firmware/qemu_fw_cfg/by_name/opt/io.hayloft";
const TAGS: [&str; 2] = [
    "class/dmi/id/chassis_asset_tag",
    "class/dmi/id/board_asset_tag",
];

/// Reads `/sys`.
pub(crate) struct Hypervisor {
    sys: PathBuf,
}

impl Hypervisor {
    pub(crate) fn new(sys: Option<&Path>) -> Self {
        Self {
            sys: sys.unwrap_or(Path::new("/sys")).to_owned(),
        }
    }

    /// The texts of `fw_cfg`, those of them that are there.
    fn fw_cfg(&self) -> Result<Option<Told>, SourceSilence> {
        let read = |name: &str| {
            let path = self.sys.join(FW_CFG).join(name).join("raw");
            let there = path.exists().then(|| small_file(&path)).transpose();
            // The text may end with the zero byte of a C string.
            there.map(|text| text.map(|text| text.trim_matches(['\0', '\n', ' ']).to_owned()))
        };
        let told = Told::new(read("host")?.as_deref(), read("rack")?.as_deref())?;
        Ok(told.map(|told| told.by("fw_cfg opt/io.hayloft")))
    }

    fn asset_tags(&self) -> Result<Option<Told>, SourceSilence> {
        for name in TAGS {
            let text = small_file(&self.sys.join(name)).unwrap_or_default();
            let mut words = text.split_whitespace();
            if words.next() != Some("hayloft") {
                continue;
            }
            let (mut host, mut rack) = (None, None);
            for word in words {
                match word.split_once('=') {
                    Some(("host", value)) => host = Some(value),
                    Some(("rack", value)) => rack = Some(value),
                    _ => return Err(format!("{name}: {word:?} is not host=... or rack=...").into()),
                }
            }
            let told = Told::new(host, rack).map_err(|error| format!("{name}: {error}"))?;
            return Ok(told.map(|told| told.by(name)));
        }
        Ok(None)
    }

    fn vendor(&self) -> String {
        let vendor = small_file(&self.sys.join("class/dmi/id/sys_vendor"));
        vendor.unwrap_or_else(|_| "unknown".to_owned())
    }
}

/// What the administrator said.
struct Told {
    host: Option<SafeName>,
    rack: Option<RackPath>,
    by: String,
}

impl Told {
    fn new(host: Option<&str>, rack: Option<&str>) -> Result<Option<Self>, SourceSilence> {
        if host.is_none() && rack.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            host: host.map(|host| named("host", host)).transpose()?,
            rack: rack.map(str::parse).transpose()?,
            by: String::new(),
        }))
    }

    fn by(mut self, by: &str) -> Self {
        by.clone_into(&mut self.by);
        self
    }
}

impl TopologySource for Hypervisor {
    fn name(&self) -> &'static str {
        "hypervisor"
    }

    fn ask(&self, _: &HttpAsker) -> Result<Whereabouts, SourceSilence> {
        let told = match self.fw_cfg()? {
            Some(told) => Some(told),
            None => self.asset_tags()?,
        };
        let Some(told) = told else {
            return Err(format!(
                "no text of an administrator in fw_cfg or the asset tags (vendor {}); a uuid in \
                 /sys names this machine, not its host",
                self.vendor()
            )
            .into());
        };
        let how = vec![format!("{} says so", told.by)];
        Ok(match told.rack {
            Some(rack) => Whereabouts {
                host: told.host,
                rack,
                how,
            },
            None => Whereabouts::within(&named("zone", "default")?, None, told.host, how),
        })
    }
}
