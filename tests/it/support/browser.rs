//! Debian's headless Chromium, controlled through a pair of pipes by its developer tools protocol.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::wait_until;

const CHROMIUM: &str = "/usr/lib/chromium/chromium";
/// Flags that disable background requests and the sandbox.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
];

/// Where pictures of the page are left for anyone who wants to look.
pub(crate) fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("page")
}

/// A browser with one page, which ends when the value is dropped.
pub(crate) struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    session: String,
    number: u64,
    /// Messages in the console, and failed loads.
    complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a browser with further flags.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        let profile = tempfile::tempdir().expect("a temporary folder");
        // The browser reads commands from its third descriptor and answers on its fourth.
        let [input, output] = ["commands", "answers"].map(|name| profile.path().join(name));
        for path in [&input, &output] {
            mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("a pipe with a name");
        }
        let child = Command::new("sh")
            .args(["-c", "in=$1 out=$2; shift 2; exec \"$@\" 3<\"$in\" 4>\"$out\"", "sh"])
            .args([&input, &output])
            .arg(CHROMIUM)
            .args(FLAGS)
            .args(flags)
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .arg("about:blank")
            // It creates a socket there, and leaves it when it is killed.
            .env("TMPDIR", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        // Each call waits for the other end, in the shell's order.
        let commands = File::options().write(true).open(&input).expect("a reader");
        let answers = File::open(&output).expect("a writer");
        let mut browser = Self {
            child,
            commands,
            answers: BufReader::new(answers),
            session: String::new(),
            number: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", &attach);
        session["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.ask(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Loads a page completely.
    pub(crate) fn open(&mut self, url: &str) {
        let loaded = self.ask("Page.navigate", &json!({"url": url}));
        assert!(loaded.get("errorText").is_none(), "{url}: {loaded}");
        while self.message()["method"] != "Page.loadEventFired" {}
    }

    /// Disables content security policies.
    pub(crate) fn pass_over_policies(&mut self) {
        self.ask("Page.setBypassCSP", &json!({"enabled": true}));
    }

    /// Evaluates a JavaScript expression on the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let question = json!({"expression": expression, "returnByValue": true});
        self.ask("Runtime.evaluate", &question)["result"]["value"].clone()
    }

    /// Role and name of each element for screen readers.
    pub(crate) fn read_aloud(&mut self) -> Vec<(String, String)> {
        let tree = self.ask("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().expect("a tree").iter();
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        nodes
            .filter(|it| it["ignored"] != true)
            .map(|it| (text(&it["role"]), text(&it["name"])))
            .collect()
    }

    /// Has pages run no script from now on, or run them again.
    pub(crate) fn disable_scripts(&mut self, is_disabled: bool) {
        self.ask("Emulation.setScriptExecutionDisabled", &json!({"value": is_disabled}));
    }

    /// Is in this time zone from now on.
    pub(crate) fn move_to(&mut self, time_zone: &str) {
        self.ask("Emulation.setTimezoneOverride", &json!({"timezoneId": time_zone}));
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.ask("Input.dispatchKeyEvent", &event);
        }
    }

    /// Shows the page at a width, in `light` or `dark`.
    pub(crate) fn look(&mut self, width: u32, scheme: &str) {
        self.look_at(width, 900, scheme);
    }

    /// The same in a window of this height.
    pub(crate) fn look_at(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.ask("Emulation.setEmulatedMedia", &feature);
    }

    /// Takes a picture for the book, of the window at a page of the server that follows changes.
    pub(crate) fn photograph(&mut self, address: SocketAddr, path: &str, height: u32, name: &str) {
        self.look_at(1280, height, "light");
        self.open(&format!("http://{address}{path}"));
        wait_until("the stream", || {
            let status = self.evaluate("document.getElementById('connection').textContent");
            status.as_str().is_some_and(|text| text.starts_with("Live"))
        });
        self.picture_with(&pictures().join(format!("{name}.png")), false);
    }

    /// Takes a screenshot of the page into `path`.
    pub(crate) fn picture(&mut self, path: &Path) {
        self.picture_with(path, true);
    }

    fn picture_with(&mut self, path: &Path, is_beyond: bool) {
        let parameters = json!({"captureBeyondViewport": is_beyond});
        let picture = self.ask("Page.captureScreenshot", &parameters);
        let data = picture["data"].as_str().expect("a picture");
        let png = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, png).expect("a writable folder");
    }

    /// Complaints of the page since the last call.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // Every message before this answer has been read.
        self.evaluate("0");
        std::mem::take(&mut self.complaints)
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let mut text = command.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).expect("a browser that listens");
        loop {
            let answer = self.message();
            if answer["id"] == self.number {
                // Asked while a page made way for the next one.
                if answer["error"]["message"] == "Inspected target navigated or closed" {
                    return self.ask(method, parameters);
                }
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn message(&mut self) -> Value {
        let mut text = Vec::new();
        self.answers.read_until(0, &mut text).expect("a browser that answers");
        assert_eq!(text.pop(), Some(0), "the browser has ended");
        let message: Value = serde_json::from_slice(&text).expect("JSON");
        let complains = [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Network.loadingFailed",
        ];
        if complains.iter().any(|method| message["method"] == *method) {
            self.complaints.push(message["params"].to_string());
        }
        message
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
