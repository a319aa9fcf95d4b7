//! What Go's `crypto/x509` says of a certificate chain, asked of the program that
//! `tests/verifier/install` builds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use machine_config_server::pki::{Certificate, Holder, Host};
use serde_json::{Value, json};
use time::OffsetDateTime;

/// The program, one for all tests of this process. It ends with its standard input.
static VERIFIER: LazyLock<Mutex<Verifier>> = LazyLock::new(|| Mutex::new(Verifier::start()));

struct Verifier {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _child: Child,
}

/// Why a Go client that trusts and asks what `holder` does would refuse the chain at `now`: an error
/// for each host, or one for its trust; none if it accepts.
pub(crate) fn judge(chain: &[Certificate], holder: &Holder, now: OffsetDateTime) -> Vec<String> {
    let der = |certificates: &[Certificate]| -> Vec<String> {
        certificates.iter().map(|certificate| BASE64.encode(certificate.der())).collect()
    };
    let request = json!({
        "chain": der(chain),
        "trusted": der(&holder.trusted),
        "hosts": holder.hosts.iter().map(Host::to_string).collect::<Vec<_>>(),
        "now": now.unix_timestamp(),
    });
    let mut verifier = VERIFIER.lock().expect("a verifier that has answered so far");
    let answer = verifier.ask(&request);
    let errors = answer["errors"].as_array().expect("errors").iter();
    errors.map(|error| error.as_str().expect("text").to_owned()).collect()
}

impl Verifier {
    fn start() -> Self {
        let path = std::env::var_os("CERTIFICATE_VERIFIER").expect(
            "CERTIFICATE_VERIFIER: run tests/run, or set it to what tests/verifier/install prints",
        );
        let mut child = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program that tests/verifier/install builds");
        let requests = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { requests, answers, _child: child }
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").expect("a verifier that reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a verifier that answers");
        serde_json::from_str(&line).expect("an answer in JSON")
    }
}
