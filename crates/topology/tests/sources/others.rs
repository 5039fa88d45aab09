//! Google Cloud, Azure, the hypervisor's texts and a file.

use std::fs;
use std::path::Path;

use hayloft_topology::{NodeKeys, SourceSettings};

use crate::fake::{Answer, FakeServer, Got, ask, ok, place, settings, status};

const FLAVOR: &str = "Metadata-Flavor: Google\r\n";
const LEVELS: &str = r#"{"cluster": "europe-west1-cluster-jfhb", "block": "3e3056e23cf91a5c",
  "subblock": "0fc09525cbd5abd7", "host": "a3f2c0de00112233"}"#;

/// A machine of Google Cloud with these attributes.
fn google(attributes: &'static [(&'static str, &'static str)]) -> FakeServer {
    FakeServer::start(move |got: &Got| {
        if got.header("metadata-flavor") != "Google" {
            return status(403);
        }
        let path = got.path.strip_prefix("/computeMetadata/v1/instance/");
        let path = path.unwrap_or_default();
        let attribute = path.strip_prefix("attributes/").unwrap_or_default();
        let found = attributes.iter().find(|(name, _)| *name == attribute);
        let (code, body) = match (path, found) {
            ("zone", _) => (200, "projects/123456/zones/europe-west1-b"),
            (_, Some((_, value))) => (200, *value),
            _ => (404, ""),
        };
        Answer::Says(code, FLAVOR, body.to_owned())
    })
}

#[test]
fn google_says_sub_block_and_host() {
    let wanted = ("/europe-west1-b/0fc09525cbd5abd7", Some("a3f2c0de00112233"));
    let found = ask(
        "gcp",
        &settings(&google(&[("physical_host_topology", LEVELS)])),
    );
    assert_eq!(place(&found), wanted);
    const PATH: &str = "/3e3056e23cf91a5c/0fc09525cbd5abd7/a3f2c0de00112233";
    let found = ask("gcp", &settings(&google(&[("physical_host", PATH)])));
    assert_eq!(place(&found), wanted);
    let found = ask("gcp", &settings(&google(&[])));
    assert_eq!(place(&found), ("/europe-west1-b/unplaced", None));
}

#[test]
fn what_google_does_not_document_is_no_place() {
    for text in ["{\"block\": 3}", "[", "{}"] {
        let text: &'static str = text;
        let server = google(vec![("physical_host_topology", text)].leak());
        ask("gcp", &settings(&server)).expect_err(text);
    }
    let server = google(&[("physical_host", "/only/two")]);
    let said = ask("gcp", &settings(&server)).expect_err("two");
    assert!(said.contains("block/subblock/host"), "{said}");
    let stranger = FakeServer::start(|_| ok("projects/1/zones/z"));
    let said = ask("gcp", &settings(&stranger)).expect_err("another server");
    assert!(said.contains("not Google's"), "{said}");
}

const AZURE: &str = r#"{"location": "westeurope", "name": "vm1", "platformFaultDomain": "2",
  "platformUpdateDomain": "4", "vmScaleSetName": "datanodes", "zone": "1",
  "host": {"id": "/subscriptions/x/resourceGroups/g/providers/c/hostGroups/hg/hosts/h7"}}"#;

fn azure(body: &'static str) -> FakeServer {
    FakeServer::start(move |got: &Got| {
        let asked = got.path == "/metadata/instance/compute?api-version=2021-12-13&format=json";
        match asked && got.header("metadata") == "true" {
            true => ok(body),
            false => status(400),
        }
    })
}

#[test]
fn azure_says_fault_domain_and_dedicated_host() {
    let found = ask("azure", &settings(&azure(AZURE)));
    assert_eq!(place(&found), ("/westeurope-1/fd2", Some("h7")));
    let how = found.expect("a place").how.join("; ");
    assert!(how.contains("scale set datanodes"), "{how}");
    let plain = r#"{"location": "westus", "platformFaultDomain": "", "zone": "", "host": {}}"#;
    let found = ask("azure", &settings(&azure(plain)));
    assert_eq!(place(&found), ("/westus/unplaced", None));
}

#[test]
fn what_azure_does_not_document_is_no_place() {
    for text in ["", "{}", r#"{"location": "westus"}"#, r#"{"location": 3}"#] {
        ask("azure", &settings(&azure(text))).expect_err(text);
    }
    let odd = r#"{"location": "a/b", "platformFaultDomain": "1"}"#;
    let said = ask("azure", &settings(&azure(odd))).expect_err("unsafe");
    assert!(said.contains("no safe name"), "{said}");
}

/// A `/sys` with these files.
fn sys(files: &[(&str, &str)]) -> (tempfile::TempDir, SourceSettings) {
    let dir = tempfile::tempdir().expect("a directory");
    for (file, text) in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().expect("below it")).expect("made");
        fs::write(path, text).expect("written");
    }
    let settings = SourceSettings {
        sys: Some(dir.path().to_owned()),
        ..SourceSettings::default()
    };
    (dir, settings)
}

#[test]
fn the_administrator_of_a_hypervisor_says_host_and_rack() {
    let fw_cfg = "firmware/qemu_fw_cfg/by_name/opt/io.hayloft";
    let (host, rack) = (format!("{fw_cfg}/host/raw"), format!("{fw_cfg}/rack/raw"));
    let (_dir, both) = sys(&[(&host, "metal4\0"), (&rack, "/dc1/r7\n")]);
    assert_eq!(
        place(&ask("hypervisor", &both)),
        ("/dc1/r7", Some("metal4"))
    );
    let (_dir, alone) = sys(&[(&host, "metal4")]);
    assert_eq!(
        place(&ask("hypervisor", &alone)),
        ("/default/metal4", Some("metal4"))
    );
    let tag = "class/dmi/id/chassis_asset_tag";
    let (_dir, tagged) = sys(&[(tag, "hayloft host=metal5 rack=/r8\n")]);
    assert_eq!(place(&ask("hypervisor", &tagged)), ("/r8", Some("metal5")));
}

#[test]
fn a_uuid_is_no_host_and_a_bad_text_is_said() {
    let uuid = [
        ("hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n"),
        ("class/dmi/id/product_uuid", "4c4c4544-0044\n"),
        ("class/dmi/id/chassis_asset_tag", "No Asset Tag\n"),
    ];
    let (_dir, settings) = sys(&uuid);
    let said = ask("hypervisor", &settings).expect_err("no text");
    assert!(said.contains("names this machine, not its host"), "{said}");
    for bad in ["hayloft host=a/b", "hayloft rack=r1", "hayloft metal4"] {
        let (_dir, settings) = sys(&[("class/dmi/id/board_asset_tag", bad)]);
        ask("hypervisor", &settings).expect_err(bad);
    }
}

fn in_file(text: &str, path: &Path) -> Result<hayloft_topology::Whereabouts, String> {
    fs::write(path, text).expect("written");
    let settings = SourceSettings {
        keys: NodeKeys {
            name: "dn7".to_owned(),
            addresses: vec!["10.0.0.7".parse().expect("an address")],
        },
        ..SourceSettings::default()
    };
    ask(&format!("file:{}", path.display()), &settings)
}

#[test]
fn a_file_places_this_node_by_name_or_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("places");
    let found = in_file("# racks\n10.0.0.8 /r1\n10.0.0.7 /r2 metal4 # ours\n", &path);
    assert_eq!(place(&found), ("/r2", Some("metal4")));
    assert_eq!(place(&in_file("DN7 /dc/r3\n", &path)), ("/dc/r3", None));
    for bad in [
        "dn8 /r1\n",
        "dn7\n",
        "dn7 r1\n",
        "dn7 /r1 h x\n",
        "dn7 /r1\n10.0.0.7 /r2\n",
    ] {
        in_file(bad, &path).expect_err(bad);
    }
    fs::remove_file(&path).expect("removed");
    let said = ask(
        &format!("file:{}", path.display()),
        &SourceSettings::default(),
    );
    assert!(said.expect_err("gone").contains("No such file"));
}
