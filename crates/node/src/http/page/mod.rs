//! `/`: the node at a glance, in one page without external resources. It has the numbers as of
//! now in plain tables; its script draws what `/live` tells.
//!
//! - `finding`: one thing that is wrong or slow at a node
//! - `live`: `/live`: what the page draws, as JSON
//! - `slow_on_average`: classes of transfers that take long on average, and why
//! - `units`: sizes and times for people
//! - `what_is_wrong`: what is slow or wrong, and why, in words: one sentence each

mod finding;
mod live;
mod slow_on_average;
mod units;
mod what_is_wrong;

use std::fmt::Write as _;

use serde_json::Value;

pub use live::live;

use super::conf_stacks_loglevel::marked_up;
use units::time;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page and the policy that allows its own style and script only.
pub struct Page {
    pub html: String,
    /// `Content-Security-Policy`.
    pub policy: String,
}

/// `/`, of what [`live()`] tells.
pub fn page(live: &Value) -> Page {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'self'"
    );
    Page {
        html: html(live, &nonce),
        policy,
    }
}

fn html(live: &Value, nonce: &str) -> String {
    let name = escaped(&live["name"]);
    // Without script it is loaded again instead.
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>{name}</title>\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\
         <style nonce=\"{nonce}\">{STYLE}</style></head><body><main><h1>DataNode {name}</h1>\
         <p class=\"bar\"><span id=\"state\" class=\"dim\">As of now</span>\
         <button id=\"pause\" type=\"button\" hidden>Pause</button></p>"
    );
    facts(&mut text, live);
    slow(&mut text, live);
    text.push_str("<div id=\"disks\">");
    for disk in list(&live["disks"]) {
        of_disk(&mut text, disk);
    }
    text.push_str("</div><h2>Volumes</h2>");
    let heads = [
        "Directory",
        "Type",
        "Used",
        "Free",
        "Replicas",
        "Trash",
        "Previous",
    ];
    let rows = list(&live["volumes"]).iter().map(|volume| {
        let (used, free) = (bytes(&volume["used"]), bytes(&volume["free"]));
        let of = |key: &str| plain(&volume[key]);
        let (trash, previous) = (bytes(&volume["trash"]), bytes(&volume["previous"]));
        let replicas = of("replicas");
        vec![
            of("path"),
            of("type"),
            used,
            free,
            replicas,
            trash,
            previous,
        ]
    });
    table(&mut text, ("volumes", "Volumes", ""), &heads, rows);
    text.push_str("<h2>NameNodes and pools</h2>");
    let heads = ["NameNode", "Pool", "State", "", "Heartbeat", "Block report"];
    let rows = list(&live["namenodes"]).iter().map(|node| {
        let active = if node["active"] == true { "active" } else { "" };
        vec![
            plain(&node["address"]),
            plain(&node["pool"]),
            plain(&node["state"]),
            active.to_owned(),
            ago(&node["heartbeat_s"]),
            ago(&node["report_s"]),
        ]
    });
    table(&mut text, ("namenodes", "NameNodes", ""), &heads, rows);
    let _ = write!(
        text,
        "<p class=\"bar\"><a href=\"/jmx\">jmx</a> <a href=\"/prom\">prom</a> \
         <a href=\"/conf\">conf</a> <a href=\"/stacks\">stacks</a> \
         <a href=\"/live\">live</a></p></main>\
         <script nonce=\"{nonce}\">{SCRIPT}</script></body></html>"
    );
    text
}

fn facts(text: &mut String, live: &Value) {
    let used = format!("{} of {}", bytes(&live["used"]), bytes(&live["capacity"]));
    let busy = format!(
        "{} connections, {} reading, {} writing",
        live["connections"], live["reading"], live["writing"]
    );
    let up = format!("{} s", number(&live["up_ms"]) / 1000);
    text.push_str("<dl class=\"facts\">");
    for (id, what, value) in [
        ("space", "Used", used),
        ("left", "Left", bytes(&live["remaining"])),
        ("busy", "Now", busy),
        ("up", "Up for", up),
    ] {
        let _ = write!(
            text,
            "<div><dt>{what}</dt><dd id=\"{id}\">{value}</dd></div>"
        );
    }
    text.push_str("</dl>");
}

/// What is slow, and why.
fn slow(text: &mut String, live: &Value) {
    text.push_str("<h2>What is slow, and why</h2>");
    let all = list(&live["findings"]);
    if all.is_empty() {
        text.push_str("<ul id=\"findings\"><li>Nothing is slow or has failed.</li></ul>");
        return;
    }
    text.push_str("<ul id=\"findings\" class=\"bad\">");
    for one in all {
        let _ = write!(text, "<li>{}</li>", escaped(&one["text"]));
    }
    text.push_str("</ul>");
}

fn of_disk(text: &mut String, disk: &Value) {
    let _ = write!(text, "<h2>Disk {}</h2>", escaped(&disk["name"]));
    let heads = [
        "Class",
        "Transfers",
        "Bytes",
        "Waiting",
        "Under way",
        "Wait p99",
        "Device p99",
    ];
    let rows = list(&disk["classes"]).iter().map(|class| {
        let of = |key: &str| plain(&class[key]);
        vec![
            of("class"),
            of("ops"),
            bytes(&class["bytes"]),
            of("waiting"),
            of("running"),
            p99(&class["queue"]),
            p99(&class["service"]),
        ]
    });
    table(text, ("", "Classes", "All since the start"), &heads, rows);
    let heads = [
        "Took", "Waited", "Device", "Class", "Bytes", "Where", "Ended",
    ];
    let rows = list(&disk["slowest"]).iter().map(|slow| {
        let (wait, service) = (number(&slow["wait_us"]), number(&slow["service_us"]));
        let place = match slow["file"].as_str() {
            Some(file) => format!("file {file} at {}", bytes(&slow["offset"])),
            None => "page cache".to_owned(),
        };
        vec![
            time(wait.saturating_add(service)),
            time(wait),
            time(service),
            plain(&slow["class"]),
            bytes(&slow["bytes"]),
            place,
            format!("{} s ago", number(&slow["ago_ms"]) / 1000),
        ]
    });
    let caption = "The slowest ten transfers of the last minute";
    table(text, ("", "Slowest transfers", caption), &heads, rows);
}

/// A table with its id, the name of the region that scrolls, and its caption.
fn table(
    text: &mut String,
    (id, name, caption): (&str, &str, &str),
    heads: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) {
    let _ = write!(
        text,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table"
    );
    if !id.is_empty() {
        let _ = write!(text, " id=\"{id}\"");
    }
    let _ = write!(text, "><caption>{caption}</caption><thead><tr>");
    for head in heads {
        let _ = write!(text, "<th scope=\"col\">{head}</th>");
    }
    text.push_str("</tr></thead><tbody>");
    for row in rows {
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<td>{}</td>", marked_up(&cell));
        }
        text.push_str("</tr>");
    }
    text.push_str("</tbody></table></div>");
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn escaped(value: &Value) -> String {
    marked_up(&plain(value))
}

fn ago(seconds: &Value) -> String {
    let told = seconds.as_u64().map(|seconds| format!("{seconds} s ago"));
    told.unwrap_or_else(|| "never".to_owned())
}

fn bytes(value: &Value) -> String {
    units::bytes(number(value))
}

/// The time that 99 of 100 keep to; nothing where nothing was counted.
fn p99(summary: &Value) -> String {
    let counted = number(&summary["count"]) > 0;
    let told = counted.then(|| time(number(&summary["p99"])));
    told.unwrap_or_default()
}

#[cfg(test)]
mod tests;
