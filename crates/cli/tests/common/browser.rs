//! Headless Chromium, told what to do: the DevTools protocol over two pipes, a JSON value and a zero byte for each
//! message.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Chromium's end of the pipes is at the descriptors 3 and 4.
const START: &str = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// A browser with one page. What the page complains about, as scripts that fail and what the policy forbids, is kept.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    number: u64,
    pub complaints: Vec<String>,
}

impl Browser {
    /// `shell` runs `sh` where the browser is to be.
    pub fn start(shell: Command, profile: &Path) -> Result<Browser> {
        Browser::start_with(shell, profile, &[])
    }

    /// Likewise, with more options.
    pub fn start_with(mut shell: Command, profile: &Path, options: &[&str]) -> Result<Browser> {
        shell.args(["-c", START, "chromium", "--headless", "--no-sandbox", "--disable-gpu"]);
        shell.args([
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--disable-sync",
        ]);
        shell.args(["--disable-background-networking", "--disable-component-update"]);
        shell.arg(format!("--user-data-dir={}", profile.display())).args(options);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (said, heard) = channel();
        thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(std::result::Result::ok) {
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if said.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Browser { child, to, from: heard, session: None, number: 0, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Log", "Runtime"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// One command of the protocol, and its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        let session = self.session.clone();
        self.call_in(session.as_deref(), method, parameters)
    }

    /// Likewise, for a page, or for the browser.
    fn call_in(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Result<Value> {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.to.write_all(&bytes)?;
        loop {
            let heard = self.from.recv_timeout(PATIENCE);
            let mut heard = heard.map_err(|error| format!("no answer to {method}: {error}"))?;
            if heard["id"] == self.number {
                return match heard.get("error") {
                    Some(error) => Err(format!("{method}: {error}").into()),
                    None => Ok(heard["result"].take()),
                };
            }
            self.note(&heard);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(parameters["exceptionDetails"].to_string()),
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                Some(parameters["entry"]["text"].to_string())
            }
            _ => None,
        };
        self.complaints.extend(complaint);
    }

    /// The size of the window in CSS pixels, whether the system is dark, and whether it wants things to stand still.
    pub fn look(&mut self, (width, height): (u32, u32), dark: bool, still: bool) -> Result {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = json!({"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }});
        let motion = json!({"name": "prefers-reduced-motion", "value": if still { "reduce" } else { "no-preference" }});
        self.call("Emulation.setEmulatedMedia", json!({"features": [scheme, motion]}))?;
        Ok(())
    }

    pub fn open(&mut self, url: &str) -> Result {
        let opened = self.call("Page.navigate", json!({"url": url}))?;
        match opened.get("errorText") {
            Some(error) => Err(format!("{url}: {error}").into()),
            None => Ok(()),
        }
    }

    /// The title of a page that is opened on a connection of its own: in a context that ends with it.
    #[allow(dead_code)] // the tests of the admin page open one connection
    pub fn title_anew(&mut self, url: &str) -> Result<String> {
        let context =
            self.call_in(None, "Target.createBrowserContext", json!({}))?["browserContextId"].take();
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = self.call_in(None, "Target.createTarget", target)?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.call_in(None, "Target.attachToTarget", attach)?;
        let session = attached["sessionId"].as_str();
        let opened = self.call_in(session, "Page.navigate", json!({"url": url}))?;
        if let Some(error) = opened.get("errorText") {
            return Err(format!("{url}: {error}").into());
        }
        const TITLE: &str = "new Promise(done => document.readyState == 'complete'
            ? done(document.title) : addEventListener('load', () => done(document.title)))";
        let title = json!({"expression": TITLE, "returnByValue": true, "awaitPromise": true});
        let title = self.call_in(session, "Runtime.evaluate", title)?;
        self.call_in(None, "Target.disposeBrowserContext", json!({"browserContextId": context}))?;
        Ok(title["result"]["value"].as_str().unwrap_or_default().to_owned())
    }

    /// What a script says.
    pub fn eval(&mut self, script: &str) -> Result<Value> {
        let asked = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let mut said = self.call("Runtime.evaluate", asked)?;
        match said.get("exceptionDetails") {
            Some(error) => Err(format!("{script}: {error}").into()),
            None => Ok(said["result"]["value"].take()),
        }
    }

    /// Waits until a script says something that JavaScript takes for true.
    pub fn wait_for(&mut self, script: &str) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Between two pages there is nothing to ask.
            let said = self.eval(script).unwrap_or(Value::Null);
            if !matches!(said, Value::Null | Value::Bool(false)) && said != "" && said != 0 {
                return Ok(said);
            }
            if Instant::now() > deadline {
                let shown = self.eval("document.body.innerText")?;
                return Err(format!("{script} is not so: {}", shown.as_str().unwrap_or_default()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses a key, such as `Tab` or `Enter`.
    pub fn press(&mut self, key: &str) -> Result {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            other => return Err(format!("the key {other} is not known here").into()),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// The whole page as a PNG file.
    pub fn screenshot(&mut self, file: &Path) -> Result {
        let size = self.call("Page.getLayoutMetrics", json!({}))?["cssContentSize"].clone();
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let asked = json!({"captureBeyondViewport": true, "clip": clip});
        let taken = self.call("Page.captureScreenshot", asked)?;
        let mut decode = Command::new("base64");
        decode.arg("-d").stdin(Stdio::piped()).stdout(std::fs::File::create(file)?);
        let mut decode = decode.spawn()?;
        let mut to = decode.stdin.take().expect("piped");
        to.write_all(taken["data"].as_str().unwrap_or_default().as_bytes())?;
        drop(to);
        if decode.wait()?.success() { Ok(()) } else { Err("base64 refuses the picture".into()) }
    }

    /// Ends it; an error tells what the page has complained about.
    pub fn close(mut self) -> Result {
        if self.complaints.is_empty() { Ok(()) } else { Err(self.complaints.join("\n").into()) }
            .and_then(|()| self.call("Browser.close", json!({})).map(drop))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
