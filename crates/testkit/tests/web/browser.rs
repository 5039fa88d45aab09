//! A headless Chromium, told what to do over a pipe (the DevTools protocol).

use hayloft_testkit::TestkitError;
use hayloft_testkit::error::Result;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// It reads commands from descriptor 3 and answers on 4. It ends by itself in any case.
const START: &str = "exec 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1; exec timeout 180 chromium \"$@\"";

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// Errors in the console, and exceptions.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Whether there is one.
    pub fn is_installed() -> bool {
        let version = Command::new("chromium").arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    }

    /// Starts one whose profile is in `dir`, with an empty page.
    pub fn start(dir: &Path) -> Result<Self> {
        let failed = TestkitError::file("starting", "chromium");
        let mut child = Command::new("sh")
            .args(["-c", START, "sh", "--headless", "--no-sandbox"])
            .args(["--disable-gpu", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", dir.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let lost = || TestkitError::Talk("chromium has no pipes".into());
        let to = child.stdin.take().ok_or_else(lost)?;
        let from = BufReader::new(child.stdout.take().ok_or_else(lost)?);
        let mut browser = Self {
            child,
            to,
            from,
            calls: 0,
            session: None,
            complaints: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for part in ["Log.enable", "Runtime.enable", "Page.enable"] {
            browser.call(part, json!({}))?;
        }
        Ok(browser)
    }

    /// Carries out one command.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        let failed = || TestkitError::file("talking to", "chromium");
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = format!("{message}\0");
        self.to.write_all(text.as_bytes()).map_err(failed())?;
        loop {
            let mut answer = Vec::new();
            let read = self.from.read_until(0, &mut answer).map_err(failed())?;
            if read == 0 {
                return Err(TestkitError::Talk(format!("chromium ended at {method}")));
            }
            answer.pop();
            let answer: Value = serde_json::from_slice(&answer)
                .map_err(|error| TestkitError::Talk(format!("chromium: {error}")))?;
            if answer["id"] == self.calls {
                return match &answer["error"] {
                    Value::Null => Ok(answer["result"].clone()),
                    error => Err(TestkitError::Talk(format!("{method}: {error}"))),
                };
            }
            self.hear(&answer);
        }
    }

    fn hear(&mut self, event: &Value) {
        let params = &event["params"];
        let bad = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => params["entry"]["level"] == "error",
            Some("Runtime.consoleAPICalled") => params["type"] == "error",
            _ => false,
        };
        if bad {
            self.complaints.push(params.to_string());
        }
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let what = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", what)?;
        Ok(answer["result"]["value"].clone())
    }

    /// Chooses a file of this machine for an input of the page.
    pub fn choose(&mut self, selector: &str, file: &Path) -> Result<()> {
        let document = self.call("DOM.getDocument", json!({}))?;
        let what = json!({"nodeId": document["root"]["nodeId"], "selector": selector});
        let input = self.call("DOM.querySelector", what)?;
        let files = json!({"nodeId": input["nodeId"], "files": [file.display().to_string()]});
        self.call("DOM.setFileInputFiles", files).map(|_| ())
    }

    /// A window of that width, dark or light.
    pub fn window(&mut self, width: u32, dark: bool) -> Result<()> {
        let size = json!({"width": width, "height": 844, "deviceScaleFactor": 1,
            "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        self.call("Emulation.setScrollbarsHidden", json!({"hidden": true}))?;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media)?;
        Ok(())
    }

    /// The whole page as a PNG, in base 64.
    pub fn picture(&mut self) -> Result<String> {
        let what = json!({"captureBeyondViewport": true});
        let answer = self.call("Page.captureScreenshot", what)?;
        Ok(answer["data"].as_str().unwrap_or_default().to_owned())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.call("Browser.close", json!({}));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
