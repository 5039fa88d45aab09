//! The page of a node in a browser: it draws what happens, fits a phone, and has its numbers
//! without a script.

use super::browser::Browser;
use super::{BLOCK, Lab, OURS, ask, request};
use hayloft_testkit::error::Result;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Outcome, TestkitError, http};
use serde_json::{Value, json};

/// Transfers that the page tells of.
const TRANSFERS: &str = "[...document.querySelectorAll('#disks section')].map(s => \
    [...s.querySelector('table').tBodies[0].rows].map(r => +r.cells[1].textContent)\
    .reduce((a, b) => a + b, 0)).reduce((a, b) => a + b, 0)";
/// Whether the throughput is a line of several points.
const RATE: &str = "(document.querySelector('.chart path')?.getAttribute('d') || '')\
    .split('L').length > 4";
const LINES: &str = "document.querySelectorAll('.chart path').length";
const WIDTHS: &str = "[innerWidth, document.documentElement.scrollWidth]";

/// Done when it is `so`; else what was `seen`.
fn once(so: bool, seen: impl Into<String>) -> Seen<()> {
    if so {
        Seen::Done(())
    } else {
        Seen::NotYet(seen.into())
    }
}

impl Lab {
    /// What the page's script is told.
    pub fn live(&mut self) -> Result<Outcome> {
        let text = http::get(self.web(OURS), "/live")?;
        let live: Value = serde_json::from_str(&text)
            .map_err(|error| TestkitError::Talk(format!("/live is no JSON: {error}")))?;
        for list in ["volumes", "namenodes", "disks"] {
            expect(live[list][0].is_object(), || format!("{list} in {live}"))?;
        }
        let classes = live["disks"][0]["classes"].as_array();
        let writes = classes.into_iter().flatten();
        let bytes: u64 = writes
            .filter(|one| one["class"] == "client-write")
            .filter_map(|one| one["bytes"].as_u64())
            .sum();
        expect(bytes >= 3 * BLOCK, || format!("{bytes} bytes written"))?;
        let slowest = live["disks"][0]["slowest"].as_array();
        let slowest = slowest.cloned().unwrap_or_default();
        expect(slowest.len() <= 10, || format!("{slowest:?}"))?;
        let took = |one: &Value| one["wait_us"].as_u64().zip(one["service_us"].as_u64());
        let took: Vec<Option<u64>> = slowest
            .iter()
            .map(|s| took(s).map(|(a, b)| a + b))
            .collect();
        expect(took.is_sorted_by(|a, b| a >= b), || format!("{took:?}"))?;
        let page = ask(self.web(OURS), &request("GET", "/", ""))?;
        expect_eq("the page", page.code(), Some(200))?;
        let head = page.head.to_ascii_lowercase();
        let policy = "content-security-policy: default-src 'none'; script-src 'nonce-";
        expect(head.contains(policy), || page.head.clone())?;
        passed()
    }

    /// The page in a browser.
    pub fn drawn(&mut self) -> Result<Outcome> {
        if !Browser::is_installed() {
            println!("web: the page in a browser: skipped, chromium is not installed");
            return Ok(Outcome::Skipped("chromium is not installed".into()));
        }
        let dir = self.cluster.dir().join("browser");
        let mut browser = Browser::start(&dir)?;
        browser.window(390, false)?;
        let url = format!("http://{}/", self.web(OURS));
        browser.call("Page.navigate", json!({"url": url}))?;
        let shown = |browser: &mut Browser| Ok(browser.value(TRANSFERS)?.as_u64().unwrap_or(0));
        wait::until("numbers", seconds(20), || {
            Ok(once(shown(&mut browser)? > 0, "none"))
        })?;
        let before = shown(&mut browser)?;
        let mut file = 0;
        wait::until("higher numbers and lines", seconds(60), || {
            file += 1;
            self.fs
                .put(&format!("/page{file}"), 4 * BLOCK, 9, json!({}))?;
            self.fs.check(&format!("/page{file}"), 4 * BLOCK, 9)?;
            let (now, drawn) = (shown(&mut browser)?, browser.value(RATE)? == true);
            let seen = format!("{now} transfers, {before} before; drawn: {drawn}");
            Ok(once(now > before && drawn, seen))
        })?;
        let pictures = std::env::var_os("HAYLOFT_WEB_PICTURES");
        for (width, dark) in [(390, false), (390, true), (1200, false), (1200, true)] {
            browser.window(width, dark)?;
            let widths = browser.value(WIDTHS)?;
            let fits = widths[1].as_u64() <= widths[0].as_u64();
            expect(fits, || format!("{widths} at {width}"))?;
            let picture = browser.picture()?;
            if let Some(dir) = &pictures {
                let name = format!("page-{width}-{}.b64", if dark { "dark" } else { "light" });
                let path = std::path::Path::new(dir).join(name);
                let failed = TestkitError::file("writing", &path);
                std::fs::write(&path, picture).map_err(failed)?;
            }
        }
        expect(browser.complaints.is_empty(), || {
            browser.complaints.join("\n")
        })?;
        Self::plain(&mut browser, &url)
    }

    /// Without a script.
    fn plain(browser: &mut Browser, url: &str) -> Result<Outcome> {
        let off = json!({"value": true});
        browser.call("Emulation.setScriptExecutionDisabled", off)?;
        browser.call("Page.navigate", json!({"url": url}))?;
        let rows = "document.querySelectorAll('#disks td').length";
        wait::until("a plain table", seconds(20), || {
            let cells = browser.value(rows)?.as_u64().unwrap_or(0);
            let drawn = browser.value(LINES)?.as_u64();
            let plain = cells >= 7 && drawn == Some(0);
            Ok(once(plain, format!("{cells} cells, {drawn:?} lines")))
        })?;
        passed()
    }
}
