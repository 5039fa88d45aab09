use serde_json::json;

use super::*;

fn hostile() -> Value {
    let bad = "<script>alert(1)</script>\"&";
    json!({
        "name": bad, "up_ms": 5000, "capacity": 1_u64 << 40, "used": 10, "remaining": 2048,
        "connections": 1, "reading": 2, "writing": 3,
        "findings": [{"text": format!("The volume {bad} has failed.")}],
        "volumes": [{"path": bad, "type": "DISK", "used": 1, "free": 2, "replicas": 77,
            "trash": 3072, "previous": 5}],
        "namenodes": [{"address": bad, "service": bad, "pool": bad, "state": "RUNNING",
            "active": true, "heartbeat_s": 2, "report_s": null}],
        "disks": [{"name": bad,
            "classes": [{"class": bad, "ops": 3, "bytes": 4096, "waiting": 1, "running": 0,
                "queue": {}, "service": {"count": 100, "p99": 1024}}],
            "run_bytes": [],
            "slowest": [{"class": bad, "ago_ms": 3000, "wait_us": 1500, "service_us": 7,
                "bytes": 9, "file": bad, "offset": 0}]}],
    })
}

#[test]
fn names_are_text_and_never_marks() {
    let html = page(&hostile()).html;
    assert!(!html.contains("alert(1)</script>"), "{html}");
    assert_eq!(html.matches("<script").count(), 1, "only its own");
    assert_eq!(html.matches("&lt;script&gt;alert(1)").count(), 10);
}

#[test]
fn numbers_are_there_without_a_script() {
    let html = page(&hostile()).html;
    for part in [
        "<td>77</td><td>3.0 KiB</td><td>5 B</td>",
        "10 B of 1.0 TiB",
        "<td>4.0 KiB</td>",
        "<td>2 s ago</td><td>never</td>",
        "<td>1.0 ms</td>",
        "<td>1.5 ms</td><td>1.5 ms</td><td>7 µs</td>",
        "<noscript><meta http-equiv=\"refresh\" content=\"5\">",
    ] {
        assert!(html.contains(part), "{part} in {html}");
    }
    let empty = page(&json!({"name": "a"})).html;
    assert!(empty.contains("Nothing is slow or has failed."), "{empty}");
}

#[test]
fn only_its_own_style_and_script_may_run() {
    let (one, other) = (page(&hostile()), page(&hostile()));
    assert_ne!(one.policy, other.policy, "a number for each answer");
    let nonce = one.policy.split("'nonce-").nth(1).expect("one");
    let nonce = nonce.split('\'').next().expect("ends");
    assert_eq!(nonce.len(), 32);
    assert!(one.policy.starts_with("default-src 'none'; "));
    assert!(!one.policy.contains("unsafe"), "{}", one.policy);
    let marked = |tag: &str| one.html.contains(&format!("<{tag} nonce=\"{nonce}\">"));
    assert!(marked("script") && marked("style"));
    // Attributes that the policy would refuse, and what would be fetched from elsewhere.
    for part in [" style=", " onclick=", "<img", "src=\"", "url(", "@import"] {
        assert!(!one.html.contains(part), "{part}");
    }
    for end in ["</script", "</style"] {
        assert!(!SCRIPT.contains(end) && !STYLE.contains(end));
    }
    // The script sets text only.
    for part in [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
    ] {
        assert!(!SCRIPT.contains(part), "{part}");
    }
}
