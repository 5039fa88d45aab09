//! What the store is told, from what the configuration files say.

use std::time::Duration;

use hayloft_io::DiskSettings;
use hayloft_io::calibrate::Media;
use hayloft_store::{
    DirectoryScanConfig, Reserved, ScanConfig, StagingOptions, StoreConfig, VolumeChoosing,
    VolumeConfig,
};

use crate::config::{ConfigError, Configuration, keys};

/// Bytes of staging that are worth having: two arenas.
const BUDGET_MIN: u64 = 8 << 20;

/// The volumes of `dfs.datanode.data.dir`, each with its engine and reserved space.
///
/// # Errors
/// [`ConfigError::Conflict`] when an unknown reserved-space calculator is named.
pub fn volumes(config: &Configuration) -> Result<Vec<VolumeConfig>, ConfigError> {
    let calculator = Calculator::from(&config.get(&keys::DU_RESERVED_CALCULATOR))?;
    let dirs = config.get(&keys::DATA_DIRS);
    Ok(dirs
        .iter()
        .map(|dir| VolumeConfig {
            storage_type: dir.storage_type,
            path: dir.path.clone(),
            engine: config.engine_for(dir),
            reserved: calculator.reserved(&config.reserved_for(dir)),
        })
        .collect())
}

/// Everything the store is told at start.
///
/// # Errors
/// [`ConfigError::Conflict`] when a policy is named that does not exist here.
pub fn store_config(config: &Configuration) -> Result<StoreConfig, ConfigError> {
    Ok(StoreConfig {
        volumes: volumes(config)?,
        perm: config.get(&keys::DATA_DIR_PERM).0,
        failed_volumes_tolerated: config.get(&keys::FAILED_VOLUMES_TOLERATED),
        volume_choosing: volume_choosing(config)?,
        sync_on_close: config.get(&keys::SYNC_ON_CLOSE),
        replica_cache_expiry: config.get(&keys::REPLICA_CACHE_EXPIRY),
        dfs_used_cache_expiry: config.get(&keys::CACHED_DFS_USED_INTERVAL),
        delete_lanes_per_volume: usize::try_from(config.get(&keys::ASYNC_DISK_THREADS))
            .unwrap_or(usize::MAX),
        writer_stop_timeout: config.get(&keys::XCEIVER_STOP_TIMEOUT),
        delete_duplicates: config.get(&keys::DUPLICATE_REPLICA_DELETION),
        check_min_gap: config.get(&keys::DISK_CHECK_MIN_GAP),
        check_timeout: config.get(&keys::DISK_CHECK_TIMEOUT),
        disk: disk(config)?,
        staging: staging(config)?,
        scan: scan(config),
        directory_scan: directory_scan(config),
        ..StoreConfig::default()
    })
}

fn disk(config: &Configuration) -> Result<DiskSettings, ConfigError> {
    let media = config.get(&keys::IO_MEDIA);
    let media = match media.to_ascii_lowercase().as_str() {
        "auto" => None,
        "rotating" => Some(Media::Rotating),
        "flash" => Some(Media::Flash),
        _ => {
            return Err(ConfigError::Conflict {
                what: format!(
                    "{} is {media}: it must be auto, rotating or flash",
                    keys::IO_MEDIA.name()
                ),
            });
        }
    };
    let depth = config.get(&keys::IO_DEPTH);
    Ok(DiskSettings {
        quantum: Some(config.get(&keys::IO_QUANTUM)).filter(|bytes| *bytes > 0),
        depth: usize::try_from(depth).ok().filter(|depth| *depth > 0),
        media,
    })
}

/// Bytes of memory for data between sockets and disks: `hayloft.memory.limit`, or where it is 0 a [share](crate::memory)
/// of the machine's.
///
/// # Errors
/// [`ConfigError::Conflict`] for a limit that is too small to be of use.
pub fn memory_limit(config: &Configuration) -> Result<u64, ConfigError> {
    match config.get(&keys::MEMORY_LIMIT) {
        0 => Ok(crate::memory::staging_default()),
        bytes if bytes >= BUDGET_MIN => Ok(bytes),
        bytes => Err(ConfigError::Conflict {
            what: format!(
                "{} is {bytes} bytes: it must be at least {BUDGET_MIN} (8m), or 0 for a share of the machine's memory",
                keys::MEMORY_LIMIT.name()
            ),
        }),
    }
}

/// How many of the `limit` bytes readers have for what is read ahead, besides what they have in any case; the rest is
/// staging's. An eighth (of 753 MiB, each of sixteen readers reads two MiB at a time instead of half of one: a device gives
/// twice as much of that); nothing of a small limit.
#[must_use]
pub fn reading_share(limit: u64) -> u64 {
    if limit < 8 * BUDGET_MIN { 0 } else { limit / 8 }
}

fn staging(config: &Configuration) -> Result<StagingOptions, ConfigError> {
    let dir = config.get(&keys::STAGING_DIR);
    let limit = memory_limit(config)?;
    Ok(StagingOptions {
        dir: (!dir.trim().is_empty()).then(|| dir.trim().into()),
        enabled: config.get(&keys::STAGING_ENABLED),
        close: config.get(&keys::STAGING_CLOSE),
        burst: config.get(&keys::STAGING_BURST),
        budget: limit - reading_share(limit),
    })
}

fn scan(config: &Configuration) -> ScanConfig {
    let default = ScanConfig {
        ..StoreConfig::default().scan
    };
    ScanConfig {
        period: match config.get(&keys::SCAN_PERIOD) {
            // Hadoop: 0 means the default period, negative (no value here) means never.
            Some(period) if period.is_zero() => default.period,
            Some(period) => period,
            None => Duration::ZERO,
        },
        bytes_per_second: config.get(&keys::SCAN_BYTES_PER_SECOND),
    }
}

fn directory_scan(config: &Configuration) -> DirectoryScanConfig {
    DirectoryScanConfig {
        interval: config
            .get(&keys::DIRECTORY_SCAN_INTERVAL)
            .unwrap_or_default(),
        run_ms_per_second: match config.get(&keys::DIRECTORY_SCAN_THROTTLE) {
            limit @ 1..=999 => limit.unsigned_abs(),
            _ => 1000,
        },
        reconcile_batch: usize::try_from(config.get(&keys::RECONCILE_BATCH_SIZE))
            .unwrap_or(usize::MAX),
        reconcile_pause: config.get(&keys::RECONCILE_BATCH_INTERVAL),
    }
}

fn volume_choosing(config: &Configuration) -> Result<VolumeChoosing, ConfigError> {
    let policy = config.get(&keys::VOLUME_CHOOSING_POLICY);
    let additional = config.get(&keys::ROUND_ROBIN_ADDITIONAL_SPACE);
    match simple_name(&policy) {
        "RoundRobinVolumeChoosingPolicy" => Ok(VolumeChoosing::RoundRobin { additional }),
        "AvailableSpaceVolumeChoosingPolicy" => Ok(VolumeChoosing::AvailableSpace {
            threshold: config.get(&keys::AVAILABLE_SPACE_THRESHOLD),
            #[expect(clippy::cast_possible_truncation, reason = "a share between 0 and 1")]
            fraction: config.get(&keys::AVAILABLE_SPACE_FRACTION) as f32,
            additional,
        }),
        _ => Err(ConfigError::Conflict {
            what: format!(
                "{} is {policy}, which is not available here: use RoundRobinVolumeChoosingPolicy or AvailableSpaceVolumeChoosingPolicy",
                keys::VOLUME_CHOOSING_POLICY.name()
            ),
        }),
    }
}

/// How bytes and per cent of reserved space combine.
#[derive(Clone, Copy)]
enum Calculator {
    Absolute,
    Percentage,
    /// The larger of the two.
    Conservative,
}

impl Calculator {
    fn from(class: &str) -> Result<Self, ConfigError> {
        match simple_name(class) {
            "ReservedSpaceCalculatorAbsolute" => Ok(Self::Absolute),
            "ReservedSpaceCalculatorPercentage" => Ok(Self::Percentage),
            "ReservedSpaceCalculatorConservative" => Ok(Self::Conservative),
            _ => Err(ConfigError::Conflict {
                what: format!(
                    "{} is {class}, which is not available here: use ReservedSpaceCalculatorAbsolute, ...Percentage or ...Conservative",
                    keys::DU_RESERVED_CALCULATOR.name()
                ),
            }),
        }
    }

    fn reserved(self, set: &crate::config::Reserved) -> Reserved {
        let pct = u8::try_from(set.percent.min(100)).unwrap_or(100);
        match self {
            Self::Absolute => Reserved {
                bytes: set.bytes,
                pct: 0,
            },
            Self::Percentage => Reserved { bytes: 0, pct },
            Self::Conservative => Reserved {
                bytes: set.bytes,
                pct,
            },
        }
    }
}

/// The class name without package and enclosing class.
fn simple_name(class: &str) -> &str {
    class.rsplit(['.', '$']).next().unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Configuration {
        Configuration::from_properties(pairs.iter().copied()).expect("the properties are valid")
    }

    #[test]
    fn volumes_carry_type_engine_and_reserve() {
        let config = with(&[
            ("dfs.datanode.data.dir", "[SSD]file:///a,/b"),
            ("hayloft.io.engine./b", "memory"),
            ("dfs.datanode.du.reserved", "1k"),
        ]);
        let volumes = volumes(&config).expect("valid");
        assert_eq!(volumes.len(), 2);
        assert_eq!(volumes[0].storage_type.name(), "SSD");
        assert_eq!(volumes[0].engine, "auto");
        assert_eq!(volumes[1].engine, "memory");
        assert_eq!(
            volumes[1].reserved,
            Reserved {
                bytes: 1024,
                pct: 0
            }
        );
    }

    #[test]
    fn a_memory_limit_is_a_share_or_enough_to_be_useful() {
        let budget = |limit: &str| {
            let config = with(&[("hayloft.memory.limit", limit)]);
            store_config(&config).map(|store| store.staging.budget)
        };
        let share = crate::memory::staging_default() / 8 * 7;
        let default = store_config(&with(&[])).expect("valid").staging.budget;
        let about = |budget: u64| budget.abs_diff(share) < 8;
        assert!(
            about(default) && about(budget("0").expect("valid")),
            "{default}"
        );
        assert_eq!(budget("64m").expect("valid"), 56 << 20);
        assert_eq!(budget("8m").expect("valid"), 8 << 20);
        let error = budget("4m").expect_err("too little");
        assert!(
            error.to_string().contains("hayloft.memory.limit"),
            "{error}"
        );
    }

    #[test]
    fn what_is_said_of_disks_is_checked() {
        let said = [
            ("hayloft.io.quantum", "16m"),
            ("hayloft.io.depth", "8"),
            ("hayloft.io.media", "rotating"),
        ];
        let disk = store_config(&with(&said)).expect("valid").disk;
        assert_eq!((disk.quantum, disk.depth), (Some(16 << 20), Some(8)));
        assert_eq!(disk.media, Some(Media::Rotating));
        let silent = store_config(&with(&[])).expect("valid").disk;
        assert_eq!(silent, DiskSettings::default());
        let error = store_config(&with(&[("hayloft.io.media", "tape")])).expect_err("unknown");
        assert!(error.to_string().contains("tape"), "{error}");
    }

    #[test]
    fn an_unknown_policy_is_refused_by_name() {
        let key = "dfs.datanode.fsdataset.volume.choosing.policy";
        let error = store_config(&with(&[(key, "com.example.Mine")])).expect_err("unknown");
        assert!(error.to_string().contains("com.example.Mine"), "{error}");
    }

    #[test]
    fn negative_periods_switch_scanners_off() {
        let config = with(&[
            ("dfs.datanode.scan.period.hours", "-1"),
            ("dfs.datanode.directoryscan.interval", "-1"),
        ]);
        let store = store_config(&config).expect("valid");
        assert_eq!(store.scan.period, Duration::ZERO);
        assert_eq!(store.directory_scan.interval, Duration::ZERO);
    }
}
