//! A disk that no longer gives the sector of a header.

use hayloft_io::{IoClass, check_device};

use super::rig::{Rig, read, write};

#[tokio::test]
async fn a_header_in_a_bad_sector_is_read_around_and_written_again() {
    for (at, which) in [("0", "first"), ("c0000", "second")] {
        let rig = Rig::worn();
        let path = rig.root.join("blk_1");
        let engine = rig.open("").expect("new");
        write(&engine, &path, 0, 7, 100_000).await;
        drop(engine);
        for stays in ["", "!"] {
            let bad = format!("{stays}{at}\n");
            rig.wear(&bad);
            let found = check_device(&rig.name(""), &rig.root).expect("goes on");
            let wanted = format!("the {which} header cannot be read");
            assert_eq!(found.device_findings, [wanted]);
            assert_eq!(found.stubs, 1);
            let engine = rig.open("").expect("the other is there");
            assert_eq!(read(&engine, &path).await, [7; 100_000]);
            let files = engine.meta(IoClass::Scan).data_files();
            // As the check of a volume does.
            files.probe_device().expect("works");
            let told = files.damage_of_device();
            assert_eq!(told.is_some(), stays == "!", "{told:?}");
            let told = told.unwrap_or_default();
            assert!(told.is_empty() || told.contains(which), "{told}");
            drop((files, engine));
            let left = rig.wear("");
            assert_eq!(left, if stays == "!" { bad.as_str() } else { "" });
        }
        let found = check_device(&rig.name(""), &rig.root).expect("can be checked");
        assert!(found.is_well(), "{found:?}");
    }
}

#[test]
fn a_disk_without_a_readable_header_is_refused() {
    let rig = Rig::worn();
    rig.wear("0\n");
    let error = rig.open("").expect_err("who knows what is there");
    assert!(error.contains("reading at 0 of"), "{error}");
    assert!(!rig.root.join("hayloft.device").exists());
    rig.wear("");
    drop(rig.open("").expect("new"));
    rig.wear("0\nc0000\n");
    let error = rig.open("").expect_err("none can be read");
    assert!(error.contains("reading at "), "{error}");
    let many: String = (0..9).map(|n| format!("{:x}\n", n * 4096)).collect();
    rig.wear(&many);
    let error = rig.open("").expect_err("the disk is lost");
    assert!(error.contains("reading at 32768 of"), "{error}");
    rig.wear("");
    drop(rig.open("").expect("is back"));
}
