//! Counts the allocations of a boot: each costs time when a whole cluster boots.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use allocation_counter::measure;
use arc_swap::ArcSwapOption;
use model::inputs::ServingMode;
use model::ledger::Ledger;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use telemetry::Metrics;
use telemetry::conditions::Status;

use super::auth::Authorizer;
use super::machines::router;
use super::state::{MachineRoutes, SourceReads};
use super::{Balancers, Limits, Listener, Serving};
use crate::serving::answers::Answers;
use crate::serving::answers::tests::inputs;
use crate::serving::tls::Pair;
use crate::serving::tls::policy::TlsPolicy;
use crate::serving::tokens::named_machines::NamedMachines;

/// Boots that are counted together, so that growing tables do not count.
const BOOTS: u64 = 200;
/// Maximum number of allocations for a boot: 27 are TLS records, and most others the handshake's.
const ALLOCATIONS: u64 = 175;
/// Maximum size of all of them together, in bytes: the config as TLS records, and some 60 KB.
const BYTES: u64 = 530_000;

/// A machine that boots again and again.
#[derive(Clone)]
struct Machine {
    server: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Machine {
    /// Gets the config by a new connection. Returns the length of the answer.
    fn boot(&self) -> usize {
        let name = "127.0.0.1".try_into().unwrap();
        let tls = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        let mut stream = StreamOwned::new(tls, TcpStream::connect(self.server).unwrap());
        let head = "GET /config/worker HTTP/1.1\r\nHost: mcs:22623\r\nUser-Agent: curl/8.14.1\r\n\
            Accept: application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1\r\n\
            Accept-Encoding: identity\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
        answer.len()
    }
}

/// Serves a config of 440 KB in the present runtime: its file is also in the encapsulated MachineConfig.
fn serve() -> (Serving, Machine) {
    let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let (policy, _) = TlsPolicy::new("", &[]).unwrap();
    let [crt, of_key] = ["tls.crt", "tls.key"].map(Path::new);
    let pair = Pair::parse((crt, certificate.as_bytes()), (of_key, key.as_bytes()), &policy);
    let tls = pair.unwrap().config(&policy).unwrap();
    let tls = Arc::new(ArcSwapOption::from_pointee(tls));
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Some(tls)).unwrap();
    let server = listener.address().unwrap();

    let metrics = Arc::<Metrics>::default();
    let answers = Arc::new(Answers::new(true, Arc::clone(&metrics)));
    let contents = json!({"source": format!("data:,{}", "x".repeat(220_000))});
    let files = [json!({"path": "/etc/large", "contents": contents})];
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    let inputs = inputs(ServingMode::Manifests, "rendered", &config);
    answers.replace(&inputs, SystemTime::UNIX_EPOCH);
    let machines = MachineRoutes {
        answers,
        named: NamedMachines::default(),
        reads: SourceReads::default(),
        metrics: Arc::clone(&metrics),
        status: Status::default(),
        ledger: Ledger::default(),
        auth: Authorizer::default(),
        reports: None,
    };
    let connections = metrics.connections.clone();
    let ledger = machines.ledger.clone();
    let (router, limits) = (router(Arc::new(machines)), Limits::default());
    let serving = Serving::new(router, limits, connections, Some(ledger), Balancers::default());
    serving.listen(listener);

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::clone(&policy.provider));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    (serving, Machine { server, config })
}

#[test]
fn a_boot_allocates_no_more_than_it_needs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (serving, machine) = runtime.block_on(async { serve() });
    // The server computes on this thread alone, whose allocations are counted.
    let boots = |count| {
        let machine = machine.clone();
        let boot = move || (0..count).fold(0, |_, _| machine.boot());
        runtime.block_on(async { tokio::task::spawn_blocking(boot).await }).unwrap()
    };
    assert!(boots(10) > 440_000);
    let counted = measure(|| {
        boots(BOOTS);
    });
    assert!(runtime.block_on(serving.stop()));
    let (count, bytes) = (counted.count_total / BOOTS, counted.bytes_total / BOOTS);
    println!("{count} allocations, {bytes} bytes");
    assert!(count <= ALLOCATIONS && bytes <= BYTES, "{count} allocations, {bytes} bytes");
}
