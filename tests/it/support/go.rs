//! Verdicts of Go's `crypto/x509` on certificate chains, by the program that `tests/verifier/install` builds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::{Certificate, Host, TrustHolder};
use serde_json::{Value, json};
use time::OffsetDateTime;

/// The program, shared by all tests of this process. It ends with its standard input.
static VERIFIER: LazyLock<Mutex<Verifier>> = LazyLock::new(|| Mutex::new(Verifier::start(&path())));

/// The program built with the Go release of Debian's Ignition, if this machine has it.
static OF_IGNITION: LazyLock<Option<Mutex<Verifier>>> = LazyLock::new(|| {
    let path = path().with_file_name("verifier-1.19");
    path.exists().then(|| Mutex::new(Verifier::start(&path)))
});

struct Verifier {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _child: Child,
}

/// Errors of a Go client with the trust and hosts of `holder` for a chain at `now`: one for each host, or one for its
/// trust; empty if it accepts.
pub(crate) fn judge(
    chain: &[Certificate],
    holder: &TrustHolder,
    now: OffsetDateTime,
) -> Vec<String> {
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

/// Errors of the available Go releases when they parse each certificate; empty texts without an error.
pub(crate) fn parse(ders: &[Vec<u8>]) -> Vec<String> {
    let parse: Vec<_> = ders.iter().map(|der| BASE64.encode(der)).collect();
    let request = json!({ "parse": parse });
    let mut errors = vec![String::new(); ders.len()];
    for verifier in [&*VERIFIER].into_iter().chain(OF_IGNITION.as_ref()) {
        let mut verifier = verifier.lock().expect("a verifier that has answered so far");
        let answer = verifier.ask(&request);
        let parsed = answer["parsed"].as_array().expect("an answer for each");
        assert_eq!(parsed.len(), ders.len());
        for (error, parsed) in errors.iter_mut().zip(parsed) {
            error.push_str(parsed.as_str().expect("text"));
        }
    }
    errors
}

fn path() -> PathBuf {
    let path = std::env::var_os("CERTIFICATE_VERIFIER");
    path.expect(
        "CERTIFICATE_VERIFIER: run tests/run, or set it to what tests/verifier/install prints",
    )
    .into()
}

impl Verifier {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(path)
            // Use the defaults of the old release, as a module of that time would.
            .env("GODEBUG", "x509negativeserial=0,urlstrictcolons=1")
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
