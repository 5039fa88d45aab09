//! The NameNode's own page in a browser, with a node of each kind behind it: files go up and down,
//! their beginnings, ends and blocks are shown.

use super::browser::Browser;
use hayloft_testkit::error::Result;
use hayloft_testkit::node::Kind;
use hayloft_testkit::suite::{expect, expect_eq, passed, seconds};
use hayloft_testkit::wait::{self, Seen};
use hayloft_testkit::{Cluster, Driver, NodeSpec, Outcome, TestkitError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const BLOCK: u64 = 1 << 20;
/// Lines of a file of several blocks.
const LINES: usize = 150_000;
/// Bytes that the page shows of a file's beginning or end.
const SHOWN: usize = 32 << 10;
/// Where the page's user may write.
const DIR: &str = "/shared";
/// Names that a URL cannot have as they are.
const NAMES: [&str; 3] = ["plain.txt", "a b+c%41&d=e;f#g.txt", "h\u{e4}y-\u{8349}.txt"];

/// A cluster of one node, whose NameNode has its pages.
fn cluster(kind: Kind) -> Result<Option<Site>> {
    let mut cluster = Cluster::builder(&format!("explorer-{}", kind.name().to_lowercase()))
        .conf("dfs.blocksize", BLOCK)
        .conf("dfs.replication", 1)
        .node(NodeSpec::new(kind).conf("dfs.datanode.hostname", "localhost"))
        .start()?;
    let Some(pages) = cluster.hadoop().pages() else {
        cluster.succeed();
        return Ok(None);
    };
    // Its web server looks into its configuration directory, see `Conf::write`.
    copy_all(&pages, &cluster.namenode(0).conf_dir().join("webapps"))?;
    let fs = cluster.driver()?;
    fs.fs(&["-mkdir", DIR])?;
    fs.fs(&["-chmod", "1777", DIR])?;
    Ok(Some(Site { kind, cluster, fs }))
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    let failed = || TestkitError::file("copying", from);
    std::fs::create_dir_all(to).map_err(failed())?;
    for entry in std::fs::read_dir(from).map_err(failed())? {
        let (path, to) = match entry {
            Ok(entry) => (entry.path(), to.join(entry.file_name())),
            Err(error) => return Err(failed()(error)),
        };
        if path.is_dir() {
            copy_all(&path, &to)?;
        } else {
            std::fs::copy(&path, &to).map_err(failed())?;
        }
    }
    Ok(())
}

/// The page shows the same of both kinds; only ours takes its uploads.
pub fn explored() -> Result<Outcome> {
    if !Browser::is_installed() {
        return Ok(Outcome::Skipped("chromium is not installed".into()));
    }
    let mut told = BTreeMap::new();
    for kind in [Kind::Apache, Kind::Hayloft] {
        let Some(mut site) = cluster(kind)? else {
            let why = "this Hadoop has no pages of the NameNode: scripts/fetch-hadoop gets them";
            return Ok(Outcome::Skipped(why.into()));
        };
        let seen = site.explore();
        site.cluster.conclude(seen.is_err());
        told.insert(kind.name(), seen?);
    }
    println!("web: what the console said: {told:?}");
    let ours = &told[Kind::Hayloft.name()];
    expect(ours.is_subset(&told[Kind::Apache.name()]), || {
        format!("the console said more with our node: {told:?}")
    })?;
    passed()
}

struct Site {
    kind: Kind,
    cluster: Cluster,
    fs: Driver,
}

impl Site {
    /// Gives back what the console said.
    fn explore(&mut self) -> Result<BTreeSet<String>> {
        let dir = self.cluster.dir().to_owned();
        let mut browser = Browser::start(&dir.join("browser"))?;
        let downloads = dir.join("downloads");
        let allow = json!({"behavior": "allow", "downloadPath": downloads.display().to_string()});
        browser.call("Browser.setDownloadBehavior", allow)?;
        let url = format!(
            "http://{}/explorer.html#{DIR}",
            self.cluster.namenode(0).http()
        );
        browser.call("Page.navigate", json!({"url": url}))?;
        until(
            &mut browser,
            "the directory",
            "!!$('#table-explorer').length",
        )?;
        let text: String = (0..LINES).map(|line| format!("line {line}\n")).collect();
        for name in NAMES {
            self.upload(&mut browser, &dir.join("up"), name, &text)?;
            self.information(&mut browser, name, &text)?;
            click(&mut browser, "$('#file-info-download')")?;
            whole(&downloads, name, &text)?;
            click(&mut browser, "$('#file-info .close')")?;
            until(
                &mut browser,
                "the end of it",
                "!$('#file-info:visible').length",
            )?;
        }
        self.upload(&mut browser, &dir.join("up"), "empty", "")?;
        Ok(browser.complaints.iter().map(|said| plain(said)).collect())
    }

    /// As a user chooses a file and sends it.
    fn upload(&self, browser: &mut Browser, dir: &Path, name: &str, text: &str) -> Result<()> {
        let path = dir.join(name);
        let failed = || TestkitError::file("writing", &path);
        std::fs::create_dir_all(dir).map_err(failed())?;
        std::fs::write(&path, text).map_err(failed())?;
        click(browser, "$('#btn-upload-files')")?;
        until(
            browser,
            "the form",
            "!!$('#modal-upload-file-input:visible').length",
        )?;
        browser.choose("#modal-upload-file-input", &path)?;
        until(
            browser,
            "the button",
            "!$('#modal-upload-file-button').prop('disabled')",
        )?;
        browser.value("$('#alert-panel').hide().length")?;
        click(browser, "$('#modal-upload-file-button')")?;
        if self.kind == Kind::Apache {
            // It forbids the content type that the page names (HDFS-17040).
            let refused = "$('#alert-panel-body:visible').text().startsWith(\"Couldn't upload\")";
            until(browser, "the browser's refusal", refused)?;
            let sent = dir.join("sent");
            std::fs::copy(&path, &sent).map_err(failed())?;
            let to = format!("{DIR}/{name}");
            self.fs.fs(&["-put", &sent.display().to_string(), &to])?;
            click(browser, "$('#btn-nav-directory')")?;
        }
        let there = format!(
            "!!{}.length && !$('#modal-upload-file:visible').length",
            link(name)
        );
        until(browser, name, &there)?;
        let written = self.fs.fs(&["-cat", &format!("{DIR}/{name}")])?;
        expect(written == text, || {
            format!(
                "{name} has {} bytes, {} were sent",
                written.len(),
                text.len()
            )
        })
    }

    /// Blocks, beginning and end of a file.
    fn information(&self, browser: &mut Browser, name: &str, text: &str) -> Result<()> {
        click(browser, &link(name))?;
        until(
            browser,
            "the file",
            "!!$('#file-info-blockinfo-body p:visible').length",
        )?;
        let blocks = self.fs.blocks(&format!("{DIR}/{name}"))?;
        let listed = browser.value("$('#file-info-blockinfo-list option').length")?;
        expect_eq("blocks", listed.as_u64(), Some(blocks.len() as u64))?;
        for (index, block) in blocks.iter().enumerate() {
            browser.value(&format!(
                "$('#file-info-blockinfo-list').val({index}).trigger('change').length"
            ))?;
            let body = browser.value("$('#file-info-blockinfo-body').text()")?;
            let body = body.as_str().unwrap_or_default().to_owned();
            for part in [
                format!("Block ID: {}", block.id),
                format!("Generation Stamp: {}", block.generation),
            ] {
                expect(body.contains(&part), || format!("{part} in {body}"))?;
            }
        }
        let (head, tail) = (&text[..SHOWN], &text[text.len() - SHOWN..]);
        for (button, wanted) in [("head", head), ("tail", tail)] {
            click(browser, &format!("$('#file-info-preview-{button}')"))?;
            let shown = browser.value("$('#file-info-preview-body').val()")?;
            let shown = shown.as_str().unwrap_or_default();
            expect(shown == wanted, || {
                format!("{button} of {name}: {} bytes, {shown:.100}", shown.len())
            })?;
        }
        Ok(())
    }
}

/// The link of a file in the table.
fn link(name: &str) -> String {
    format!(
        "$('.explorer-browse-links').filter((_, a) => a.textContent === {})",
        json!(name)
    )
}

fn click(browser: &mut Browser, what: &str) -> Result<()> {
    let clicked = browser.value(&format!("(e => (e && e.click(), !!e))({what}[0])"))?;
    expect(clicked == true, || format!("no {what} to click at"))
}

fn until(browser: &mut Browser, what: &str, so: &str) -> Result<()> {
    wait::until(what, seconds(30), || {
        let done = browser.value(so)? == true;
        let alert = browser.value("$('#alert-panel-body:visible').text()")?;
        let said = || format!("{alert}, console: {:?}", browser.complaints);
        Ok(if done {
            Seen::Done(())
        } else {
            Seen::NotYet(said())
        })
    })
}

/// Waits for a download, whatever the browser calls it, and takes it away.
fn whole(dir: &Path, name: &str, text: &str) -> Result<()> {
    let files = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let path = wait::until(&format!("the download of {name}"), seconds(30), || {
        let all = files();
        let done = all.iter().find(|path| {
            let partial = path.extension().is_some_and(|end| end == "crdownload");
            !partial
                && path
                    .metadata()
                    .is_ok_and(|meta| meta.len() == text.len() as u64)
        });
        Ok(match done {
            Some(path) => Seen::Done(path.clone()),
            None => Seen::NotYet(format!("{all:?}")),
        })
    })?;
    let failed = || TestkitError::file("reading", &path);
    let read = std::fs::read(&path).map_err(failed())?;
    println!(
        "web: {name} came as {:?}",
        path.file_name().unwrap_or_default()
    );
    expect(read == text.as_bytes(), || {
        format!("{path:?} has other bytes")
    })?;
    std::fs::remove_file(&path).map_err(failed())
}

/// What the console said, without what is another each time.
fn plain(said: &str) -> String {
    let value: Value = serde_json::from_str(said).unwrap_or_default();
    let entry = &value["entry"];
    match entry["text"].as_str() {
        Some(text) => {
            let url = entry["url"].as_str().unwrap_or_default();
            let path = url.splitn(4, '/').nth(3).unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            format!("{text} /{path}")
        }
        None => said.to_owned(),
    }
}
