//! What the store is told, from what the configuration files say.

use std::time::Duration;

use hayloft_io::DiskSettings;
use hayloft_protection::ParityConfig;
use hayloft_store::{
    CacheConfig, DirectoryScanConfig, ErrorsConfig, ReservedSpace, ScanConfig, StoreConfig,
    VolumeChoosing, VolumeConfig,
};

use hayloft_conf::{Calculator, ChoosingPolicy, Configuration, keys};

/// The volumes of `dfs.datanode.data.dir`, each with its engine and reserved space.
#[must_use]
pub fn volumes(config: &Configuration) -> Vec<VolumeConfig> {
    let calculator = config.get(&keys::DU_RESERVED_CALCULATOR);
    let dirs = config.get(&keys::DATA_DIRS);
    dirs.iter()
        .map(|dir| VolumeConfig {
            storage_type: dir.storage_type,
            path: dir.path.clone(),
            engine: config.engine_for(dir),
            calibrated_in: config.node_name().map(|_| config.configured_dir(dir).path),
            reserved: reserved(calculator, &config.reserved_for(dir)),
            capacity_ratio: config.capacity_ratio_for(dir),
        })
        .collect()
}

/// Everything the store is told at start.
#[must_use]
pub fn store_config(config: &Configuration) -> StoreConfig {
    StoreConfig {
        volumes: volumes(config),
        perm: config.get(&keys::DATA_DIR_PERM).0,
        failed_volumes_tolerated: config.get(&keys::FAILED_VOLUMES_TOLERATED),
        archive_share: archive_share(config),
        volume_choosing: volume_choosing(config),
        sync_on_close: config.get(&keys::SYNC_ON_CLOSE),
        replica_cache_expiry: config.get(&keys::REPLICA_CACHE_EXPIRY),
        dfs_used_cache_expiry: config.get(&keys::CACHED_DFS_USED_INTERVAL),
        delete_lanes_per_volume: usize::try_from(config.get(&keys::ASYNC_DISK_THREADS))
            .unwrap_or(usize::MAX),
        writer_stop_timeout: config.get(&keys::XCEIVER_STOP_TIMEOUT),
        delete_duplicates: config.get(&keys::DUPLICATE_REPLICA_DELETION),
        check_min_gap: config.get(&keys::DISK_CHECK_MIN_GAP),
        check_timeout: config.get(&keys::DISK_CHECK_TIMEOUT),
        check_period: config.get(&keys::DISK_CHECK_PERIOD),
        errors: ErrorsConfig {
            limit: usize::try_from(config.get(&keys::DISK_ERRORS_LIMIT)).unwrap_or(usize::MAX),
            window: config.get(&keys::DISK_ERRORS_WINDOW),
        },
        disk: disk(config),
        cache_client_reads: config.get(&keys::IO_READ_CACHED),
        write_memory: usize::try_from(write_memory(config)).unwrap_or(usize::MAX),
        page_cache: crate::memory::usable() / sharers(config),
        cache: CacheConfig {
            threads_per_volume: usize::try_from(config.get(&keys::CACHE_THREADS))
                .unwrap_or(usize::MAX),
            revocation_timeout: config.get(&keys::CACHE_REVOCATION_TIMEOUT),
            revocation_polling: config.get(&keys::CACHE_REVOCATION_POLLING),
        },
        lazy_writer_interval: config.get(&keys::LAZY_WRITER_INTERVAL),
        scan: scan(config),
        directory_scan: directory_scan(config),
        ..StoreConfig::default()
    }
}

/// How finalized replicas are protected; `None`: they are not.
#[must_use]
pub fn parity(config: &Configuration) -> Option<ParityConfig> {
    let shape = config.get(&keys::PARITY)?;
    Some(ParityConfig {
        disks: config.get(&keys::PARITY_DISKS),
        kept_max: config.get(&keys::PARITY_KEPT),
        // A slip of the pen shall not take the machine's memory.
        memory: config
            .get(&keys::PARITY_MEMORY)
            .min(crate::memory::usable() / 2),
        patience: config.get(&keys::PARITY_PATIENCE),
        scan: scan(config),
        ..ParityConfig::new(shape)
    })
}

/// The share of ARCHIVE on mounts that DISK and ARCHIVE share, if they share any. Out of bounds it
/// is the nearest that is not, as Apache reads it.
fn archive_share(config: &Configuration) -> Option<f64> {
    let share = config.get(&keys::RESERVE_FOR_ARCHIVE).clamp(0.0, 1.0);
    config.get(&keys::SAME_DISK_TIERING).then_some(share)
}

/// How many nodes of this process have a volume on the same disks.
fn sharers(config: &Configuration) -> u64 {
    match config.node_name() {
        Some(_) => config.get(&keys::NODES).len().max(1) as u64,
        None => 1,
    }
}

fn disk(config: &Configuration) -> DiskSettings {
    let depth = config.get(&keys::IO_DEPTH);
    DiskSettings {
        quantum: Some(config.get(&keys::IO_QUANTUM)).filter(|bytes| *bytes > 0),
        depth: usize::try_from(depth).ok().filter(|depth| *depth > 0),
        media: config.get(&keys::IO_MEDIA),
    }
}

/// Bytes of memory for data between sockets and disks: `hayloft.memory.limit`, or where it is 0 a
/// [share](crate::memory) of the machine's.
#[must_use]
pub fn memory_limit(config: &Configuration) -> u64 {
    let limit = config.get(&keys::MEMORY_LIMIT);
    limit.0.unwrap_or_else(crate::memory::default_limit)
}

/// The part of [`memory_limit`] for what is written, in bytes: a third. What is written waits for
/// the disk with or without memory; readers of flash keep it busy by what they ask for ahead.
#[must_use]
pub fn write_memory(config: &Configuration) -> u64 {
    memory_limit(config) / 3
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

fn volume_choosing(config: &Configuration) -> VolumeChoosing {
    let additional = config.get(&keys::ROUND_ROBIN_ADDITIONAL_SPACE);
    match config.get(&keys::VOLUME_CHOOSING_POLICY) {
        ChoosingPolicy::RoundRobin => VolumeChoosing::RoundRobin { additional },
        ChoosingPolicy::AvailableSpace => VolumeChoosing::AvailableSpace {
            threshold: config.get(&keys::AVAILABLE_SPACE_THRESHOLD),
            #[expect(clippy::cast_possible_truncation, reason = "a share between 0 and 1")]
            fraction: config.get(&keys::AVAILABLE_SPACE_FRACTION) as f32,
            additional,
        },
    }
}

/// What is kept free, as `calculator` combines what was set.
fn reserved(calculator: Calculator, set: &hayloft_conf::Reserved) -> ReservedSpace {
    let pct = u8::try_from(set.percent.min(100)).unwrap_or(100);
    let bytes = set.bytes;
    match calculator {
        Calculator::Absolute => ReservedSpace::larger(bytes, 0),
        Calculator::Percentage => ReservedSpace::larger(0, pct),
        Calculator::Conservative => ReservedSpace::larger(bytes, pct),
        Calculator::Aggressive => ReservedSpace::smaller(bytes, pct),
    }
}

#[cfg(test)]
mod tests {
    use hayloft_io::Media;

    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Configuration {
        Configuration::from_properties(pairs.iter().copied()).expect("the properties are valid")
    }

    #[test]
    fn volumes_carry_type_engine_and_reserve() {
        let config = with(&[
            ("dfs.datanode.data.dir", "[SSD]file:///a,/b"),
            ("hayloft.io.engine./b", "null"),
            ("dfs.datanode.du.reserved", "1k"),
        ]);
        let volumes = volumes(&config);
        assert_eq!(volumes.len(), 2);
        assert_eq!(volumes[0].storage_type.name(), "SSD");
        assert_eq!(volumes[0].engine, "auto");
        assert_eq!(volumes[1].engine, "null");
        assert_eq!(volumes[1].reserved, ReservedSpace::larger(1024, 0));
    }

    #[test]
    fn disk_and_archive_share_mounts_when_that_is_switched_on() {
        let share = |pairs: &[(&str, &str)]| store_config(&with(pairs)).archive_share;
        let (switch, key) = (
            ("dfs.datanode.same-disk-tiering.enabled", "true"),
            "dfs.datanode.reserve-for-archive.default.percentage",
        );
        assert_eq!(share(&[(key, "0.3")]), None);
        assert_eq!(
            (share(&[switch]), share(&[switch, (key, "0.3")])),
            (Some(0.0), Some(0.3))
        );
        assert_eq!(share(&[switch, (key, "-1")]), Some(0.0));
        assert_eq!(share(&[switch, (key, "30")]), Some(1.0));
        let config = with(&[
            ("dfs.datanode.data.dir", "[DISK]/d1,[ARCHIVE]/d1/archive"),
            (
                "dfs.datanode.same-disk-tiering.capacity-ratio.percentage",
                "[0.4]file:///d1/archive",
            ),
        ]);
        let ratios: Vec<_> = volumes(&config).iter().map(|v| v.capacity_ratio).collect();
        assert_eq!(ratios, [None, Some(0.4)]);
    }

    #[test]
    fn a_virtual_node_has_its_part_of_the_page_cache_and_the_calibration_of_all() {
        let plain = with(&[
            ("dfs.datanode.data.dir", "/d"),
            ("hayloft.nodes", "a,b,c,d"),
        ]);
        let nodes = plain.virtual_nodes().expect("valid");
        let one = store_config(&nodes[2].config);
        assert_eq!(one.page_cache, crate::memory::usable() / 4);
        assert_eq!(one.volumes[0].path, std::path::PathBuf::from("/d/c"));
        assert_eq!(
            one.volumes[0].calibrated_in,
            Some(std::path::PathBuf::from("/d"))
        );
        let alone = store_config(&with(&[("dfs.datanode.data.dir", "/d")]));
        assert_eq!(alone.page_cache, crate::memory::usable());
        assert_eq!(alone.volumes[0].calibrated_in, None);
    }

    #[test]
    fn calculators_combine_bytes_and_per_cent() {
        let reserve = |name: &str| {
            let class = format!("org.apache.hadoop.ReservedSpaceCalculator${name}");
            let config = with(&[
                ("dfs.datanode.du.reserved", "1k"),
                ("dfs.datanode.du.reserved.pct", "5"),
                ("dfs.datanode.du.reserved.calculator", &class),
            ]);
            volumes(&config)[0].reserved
        };
        for (name, wanted) in [
            (
                "ReservedSpaceCalculatorAbsolute",
                ReservedSpace::larger(1024, 0),
            ),
            (
                "ReservedSpaceCalculatorPercentage",
                ReservedSpace::larger(0, 5),
            ),
            (
                "ReservedSpaceCalculatorConservative",
                ReservedSpace::larger(1024, 5),
            ),
            (
                "ReservedSpaceCalculatorAggressive",
                ReservedSpace::smaller(1024, 5),
            ),
        ] {
            assert_eq!(reserve(name), wanted, "{name}");
        }
    }

    #[test]
    fn writers_have_a_third_of_the_memory_limit() {
        let writers = |pairs: &[(&str, &str)]| store_config(&with(pairs)).write_memory as u64;
        let default = crate::memory::default_limit() / 3;
        assert_eq!(writers(&[]), default);
        assert_eq!(writers(&[("hayloft.memory.limit", "0")]), default);
        assert_eq!(writers(&[("hayloft.memory.limit", "96m")]), 32 << 20);
    }

    #[test]
    fn what_is_said_of_disks_reaches_the_store() {
        let said = [
            ("hayloft.io.quantum", "16m"),
            ("hayloft.io.depth", "8"),
            ("hayloft.io.media", "rotating"),
        ];
        let disk = store_config(&with(&said)).disk;
        assert_eq!((disk.quantum, disk.depth), (Some(16 << 20), Some(8)));
        assert_eq!(disk.media, Some(Media::Rotating));
        let silent = store_config(&with(&[])).disk;
        assert_eq!(silent, DiskSettings::default());
    }

    #[test]
    fn what_means_nothing_is_refused_with_its_key_and_place() {
        for (key, value, allowed) in [
            (
                "hayloft.io.engine",
                "uring",
                "direct, which does all that uring did",
            ),
            ("hayloft.io.engine./data/2", "uring", "must be direct"),
            ("hayloft.io.engine./data/1", "drect", "direct"),
            ("hayloft.io.media", "tape", "rotating"),
            ("hayloft.memory.limit", "4m", "at least 8388608"),
            (
                "dfs.datanode.fsdataset.volume.choosing.policy",
                "com.example.Mine",
                "RoundRobin",
            ),
            (
                "dfs.datanode.du.reserved.calculator",
                "com.example.Mine",
                "Conservative",
            ),
        ] {
            let error = Configuration::from_properties([(key, value)]).expect_err(key);
            let said = error.to_string();
            let parts = [key, value, "command line", allowed];
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }

    #[test]
    fn negative_periods_switch_scanners_off() {
        let config = with(&[
            ("dfs.datanode.scan.period.hours", "-1"),
            ("dfs.datanode.directoryscan.interval", "-1"),
        ]);
        let store = store_config(&config);
        assert_eq!(store.scan.period, Duration::ZERO);
        assert_eq!(store.directory_scan.interval, Duration::ZERO);
    }
}
