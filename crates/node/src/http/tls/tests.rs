//! Keystores as Java's keytool makes them.

use std::path::Path;
use std::process::Command;

use super::*;

/// Makes a keystore; false where there is no keytool.
fn keystore(path: &Path, kind: &str, password: &str, key_password: &str, name: &str) -> bool {
    let _ = std::fs::remove_file(path);
    let subject = format!("CN={name}");
    let made = Command::new("keytool")
        .args([
            "-genkeypair",
            "-alias",
            "node",
            "-keyalg",
            if name == "EC" { "EC" } else { "RSA" },
        ])
        .args([
            "-dname",
            &subject,
            "-storetype",
            kind,
            "-storepass",
            password,
        ])
        .args(["-keypass", key_password, "-keystore"])
        .arg(path)
        .output();
    match made {
        Ok(made) => {
            assert!(
                made.status.success(),
                "{}",
                String::from_utf8_lossy(&made.stdout)
            );
            true
        }
        Err(error) => {
            println!("skipped: keytool: {error}");
            false
        }
    }
}

fn source(path: &Path, password: &str, key_password: &str) -> Source {
    Source {
        path: path.to_owned(),
        password: password.into(),
        key_password: key_password.into(),
        truststore: None,
        suites: Suites::default(),
        interval: Duration::from_millis(100),
    }
}

fn error(path: &Path, password: &str, key_password: &str, wanted: &str) {
    let error = source(path, password, key_password).load();
    let error = error.expect_err("cannot be used");
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn passwords_are_not_shown() {
    let shown = format!("{:?}", source(Path::new("/k"), "hunter2", "hunter3"));
    assert!(shown.contains("/k") && !shown.contains("hunter"), "{shown}");
}

#[test]
fn both_formats_of_java_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("keystore");
    if !keystore(&path, "JKS", "changeit", "another", "a") {
        return;
    }
    source(&path, "changeit", "another").load().expect("reads");
    error(&path, "changes", "another", "the password is wrong");
    error(&path, "changeit", "other", "keypassword");
    let jks = std::fs::read(&path).expect("reads");
    for kind in ["JKS", "PKCS12"] {
        keystore(&path, kind, "changeit", "changeit", "EC");
        source(&path, "changeit", "changeit").load().expect(kind);
    }
    keystore(&path, "PKCS12", "changeit", "changeit", "b");
    source(&path, "changeit", "").load().expect("reads");
    error(&path, "changes", "", "neither JKS nor a PKCS12");
    std::fs::write(&path, "nonsense").expect("writes");
    error(&path, "changeit", "", "neither JKS nor a PKCS12");
    // Whatever is damaged is words, never a panic or memory without end.
    for at in 0..jks.len() {
        let mut damaged = jks.clone();
        damaged[at] = !damaged[at];
        std::fs::write(&path, &damaged).expect("writes");
        assert!(source(&path, "changeit", "another").load().is_err(), "{at}");
        std::fs::write(&path, &jks[..at]).expect("writes");
        assert!(source(&path, "changeit", "another").load().is_err(), "{at}");
    }
    std::fs::remove_file(&path).expect("removes");
    error(&path, "changeit", "", "No such file");
}

#[tokio::test]
async fn a_new_keystore_is_used_and_a_bad_one_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("keystore");
    if !keystore(&path, "JKS", "changeit", "changeit", "a") {
        return;
    }
    let source = source(&path, "changeit", "changeit");
    let tls = Arc::new(Tls::of(source).expect("reads"));
    let stop = CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&tls).watch(stop.clone()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let first = tls.current.load_full();
    std::fs::write(&path, "nonsense").expect("writes");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(Arc::ptr_eq(&first, &tls.current.load_full()), "it goes on");
    let made = tokio::task::spawn_blocking({
        let path = path.clone();
        move || keystore(&path, "JKS", "changeit", "changeit", "b")
    });
    assert!(made.await.expect("no panic"));
    for _ in 0..100 {
        if !Arc::ptr_eq(&first, &tls.current.load_full()) {
            stop.cancel();
            watching.await.expect("ends");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the new keystore is not used");
}

#[test]
fn what_ssl_server_xml_lacks_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let site = |name: &str, properties: &str| {
        let text = format!("<configuration>{properties}</configuration>");
        std::fs::write(dir.path().join(name), text).expect("writes");
    };
    let property = |name: &str, value: &str| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    site(
        "core-site.xml",
        &property("fs.defaultFS", "hdfs://localhost:8020"),
    );
    let config = Configuration::load(dir.path(), &[]).expect("well");
    let error = |wanted: &str| {
        let error = Tls::new(&config).err().expect("cannot be");
        assert!(error.contains(wanted), "{error}");
    };
    error("ssl-server.xml");
    site("ssl-server.xml", "");
    error("lacks ssl.server.keystore.password, and no store has it");
    let elsewhere = property(
        "hadoop.security.credential.provider.path",
        "jceks://hdfs@nn/store",
    );
    site("ssl-server.xml", &elsewhere);
    error("jceks://file/PATH and localjceks://file/PATH are read");
    let password = property("ssl.server.keystore.password", "x");
    site("ssl-server.xml", &password);
    error("lacks ssl.server.keystore.location");
    let location = property("ssl.server.keystore.location", "/nowhere");
    site("ssl-server.xml", &format!("{password}{location}"));
    error("the keystore /nowhere cannot be used");
    let auth = property("ssl.server.need.client.auth", "true");
    site("ssl-server.xml", &format!("{password}{location}{auth}"));
    error("lacks ssl.server.truststore.location");
    let excluded = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256";
    let one = property("ssl.server.include.cipher.list", excluded);
    let none = property("ssl.server.exclude.cipher.list", excluded);
    site(
        "ssl-server.xml",
        &format!("{password}{location}{one}{none}"),
    );
    error("leave no cipher suite");
}

#[test]
fn policies_are_hadoop_s() {
    let of = |name: &str| {
        let config = Configuration::from_properties([("dfs.http.policy", name)]).expect("valid");
        Policy::of(&config).map(|policy| (policy.plain, policy.tls))
    };
    assert_eq!(of("HTTP_ONLY"), Ok((true, false)));
    assert_eq!(of("https_only"), Ok((false, true)));
    assert_eq!(of("HTTP_AND_HTTPS"), Ok((true, true)));
    assert!(
        of("HTTPS")
            .expect_err("no policy")
            .contains("HTTP_AND_HTTPS")
    );
}
