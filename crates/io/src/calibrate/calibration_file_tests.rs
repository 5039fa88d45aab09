use super::*;

fn sample() -> Calibration {
    Calibration {
        version: VERSION,
        measured_at_s: 1_700_000_000,
        device: "sda".into(),
        file_system: "ext4".into(),
        file_system_bytes: 1 << 40,
        media: Media::Rotating,
        quantum_bytes: 32 << 20,
        depth: 4,
        engine: "posix".into(),
        reason: "because".into(),
        runs: vec![RunPoint {
            run_bytes: 1 << 20,
            read_bytes_s: Some(1e8),
            write_bytes_s: None,
        }],
        depths: vec![DepthPoint {
            depth: 1,
            bytes_s: 5e6,
            median_us: 12_000.0,
            p99_us: 21_000.0,
        }],
        mixes: vec![MixPoint {
            read_percent: 50,
            bytes_s: 6e7,
        }],
        engines: vec![EnginePoint {
            engine: "posix".into(),
            read_bytes_s: 1e8,
            write_bytes_s: 9e7,
            cpu_s_per_gib: 0.3,
        }],
    }
}

fn text_with(pointer: &str, value: serde_json::Value) -> Vec<u8> {
    let mut json = serde_json::to_value(sample()).expect("serializes");
    *json.pointer_mut(pointer).expect("the field exists") = value;
    json.to_string().into_bytes()
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().expect("temporary directory");
    assert_eq!(
        Calibration::read(dir.path()).expect("no file is fine"),
        None
    );
    sample().write(dir.path()).expect("written");
    assert_eq!(Calibration::read(dir.path()).expect("read"), Some(sample()));
    let names: Vec<_> = fs::read_dir(dir.path())
        .expect("listed")
        .map(|e| e.expect("entry").file_name())
        .collect();
    assert_eq!(names, [FILE_NAME]);
}

#[test]
fn direct_stands_for_an_engine_that_was_removed() {
    let read = Calibration::parse(&text_with("/engine", ENGINE_REMOVED.into()));
    assert_eq!(read.expect("all else is kept").engine, "direct");
}

#[test]
fn every_number_has_a_limit() {
    for (pointer, value) in [
        ("/quantum_bytes", 0.into()),
        ("/quantum_bytes", (QUANTUM_MAX + 1).into()),
        ("/depth", 0.into()),
        ("/depth", (DEPTH_MAX + 1).into()),
        ("/engine", "floppy".into()),
        ("/reason", "x".repeat(5000).into()),
        ("/runs/0/run_bytes", 0.into()),
        ("/runs/0/read_bytes_s", (-1.0).into()),
        ("/runs/0/read_bytes_s", 1e13.into()),
        ("/depths/0/depth", 1000.into()),
        ("/depths/0/p99_us", (-1.0).into()),
        ("/mixes/0/read_percent", 101.into()),
        ("/engines/0/cpu_s_per_gib", 1e300.into()),
        ("/runs", serde_json::json!(vec![sample().runs[0]; 65])),
        ("/quantum_bytes", "many".into()),
    ] {
        let text = text_with(pointer, value.clone());
        assert!(
            Calibration::parse(&text).is_err(),
            "{pointer} = {value} was accepted"
        );
    }
    let same = text_with("/depth", 4.into());
    assert_eq!(Calibration::parse(&same), Ok(sample()));
}

#[test]
fn another_version_is_named_as_such() {
    let error = Calibration::parse(br#"{"version": 2, "new": true}"#).expect_err("refused");
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn garbage_and_giants_are_refused_with_the_place() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for text in [&b"not json"[..], &vec![b' '; (1 << 20) + 1]] {
        fs::write(Calibration::path(dir.path()), text).expect("written");
        let error = Calibration::read(dir.path()).expect_err("refused");
        assert!(matches!(error, CalibrationError::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(FILE_NAME), "{error}");
    }
}

#[test]
fn what_would_be_refused_is_not_written() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut bad = sample();
    bad.depth = 0;
    assert!(bad.write(dir.path()).is_err());
    assert!(!Calibration::path(dir.path()).exists());
}

#[test]
fn a_directory_on_another_file_system_shows() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (file_system, file_system_bytes) = file_system(dir.path()).expect("is there");
    let here = Calibration {
        file_system,
        file_system_bytes,
        ..sample()
    };
    assert_eq!(here.measured_elsewhere(dir.path()), None);
    let larger = Calibration {
        file_system_bytes: here.file_system_bytes * 2,
        ..here.clone()
    };
    let other = Calibration {
        file_system: "betterfs".into(),
        ..here
    };
    for calibration in [larger, other] {
        let why = calibration.measured_elsewhere(dir.path());
        let why = why.expect("it is another one");
        assert!(why.contains(&calibration.file_system), "{why}");
    }
}
