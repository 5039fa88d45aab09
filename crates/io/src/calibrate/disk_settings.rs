//! What is known about a disk before it is used: the operator's word, then the calibration, then
//! what the kernel says of the device.

use super::calibration_file::Calibration;
use crate::disk::{DiskConfig, Media};

/// What the operator says about disks; `None` leaves it to the calibration and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSettings {
    /// Bytes served to one stream before the disk turns to another (`hayloft.io.quantum`).
    pub quantum: Option<u64>,
    /// Reads and writes on a flash device at once (`hayloft.io.depth`).
    pub depth: Option<usize>,
    /// What the device is (`hayloft.io.media`).
    pub media: Option<Media>,
}

impl DiskSettings {
    /// The limits of the disk under a volume with this calibration.
    #[must_use]
    pub fn config(&self, calibration: Option<&Calibration>) -> DiskConfig {
        let default = DiskConfig::default();
        let measured = calibration.and_then(|c| usize::try_from(c.depth).ok());
        DiskConfig {
            quantum: self.quantum.or(calibration.map(|c| c.quantum_bytes)),
            depth: self.depth.or(measured).unwrap_or(default.depth),
            media: self.media.or(calibration.map(|c| c.media)),
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_comes_before_the_calibration() {
        let calibration = Calibration {
            version: crate::calibrate::calibration_file::VERSION,
            measured_at_s: 0,
            device: "sda".to_owned(),
            file_system: "ext4".to_owned(),
            file_system_bytes: 0,
            media: Media::Rotating,
            quantum_bytes: 16 << 20,
            depth: 4,
            engine: "direct".to_owned(),
            reason: String::new(),
            runs: Vec::new(),
            depths: Vec::new(),
            mixes: Vec::new(),
            engines: Vec::new(),
        };
        let mut settings = DiskSettings::default();
        let plain = settings.config(None);
        assert_eq!((plain.quantum, plain.depth, plain.media), (None, 32, None));
        let measured = settings.config(Some(&calibration));
        assert_eq!(measured.quantum, Some(16 << 20));
        assert_eq!((measured.depth, measured.media), (4, Some(Media::Rotating)));
        settings = DiskSettings {
            quantum: Some(1 << 20),
            depth: Some(7),
            media: Some(Media::Flash),
        };
        let said = settings.config(Some(&calibration));
        assert_eq!(said.quantum, Some(1 << 20));
        assert_eq!((said.depth, said.media), (7, Some(Media::Flash)));
    }
}
