//! States of the model, judged by the real Ignition as by us.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ignition::{SpecVersion, pointer};
use pki::{Certificate, StoredPair, TrustHolder, locked_out};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use time::OffsetDateTime;

use crate::rotation::model;
use crate::rotation::world::{HOST, World};
use crate::support::machine::Machine;
use crate::support::wait_for;

/// Serves a config by this pair, to any client until the test ends.
fn serve(pair: &StoredPair) -> SocketAddr {
    let chain = Certificate::read_all(&pair.certificates);
    let chain = chain.iter().map(|certificate| certificate.der().to_vec().into()).collect();
    let key = PrivateKeyDer::from_pem_slice(&pair.key).expect("a key");
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let config = Arc::new(config.expect("a pair"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            // Who does not trust it goes away in the middle.
            if stream.read(&mut [0; 4096]).is_ok() {
                let body = r#"{"ignition":{"version":"3.1.0"}}"#;
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
                let _ = write!(stream, "{head} {}\r\n\r\n{body}", body.len());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    address
}

/// Whether a machine with this pointer config gets what is served there.
fn boots(holder: &TrustHolder, address: SocketAddr) -> bool {
    let url = format!("https://{HOST}:{}/config/worker", address.port());
    let trusted: String = holder.trusted.iter().map(Certificate::to_pem).collect();
    let pointer = pointer(&url, trusted.as_bytes(), SpecVersion::V3_1).to_string();
    let machine = Machine::new();
    let mut fetch = machine.start("fetch", &pointer);
    wait_for("Ignition to fetch or to refuse", || {
        if !fetch.is_running() {
            assert!(fetch.ended().success(), "{}", fetch.log());
            return Some(true);
        }
        // It tries for ever.
        fetch.log().contains("x509: ").then_some(false)
    })
}

/// How many machines got nothing, and how many booted.
static SEEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

#[test]
fn the_real_ignition_rejects_the_same_holders_in_states_of_the_model() {
    let judge = |world: &World| {
        let now = OffsetDateTime::now_utc();
        let (Some(pair), chain) = (world.serving(), world.chain()) else { return };
        if chain.is_empty() || !world.states.is_multiple_of(9) {
            return;
        }
        let address = serve(pair);
        for holder in world.holders() {
            let ours = locked_out(&chain, std::slice::from_ref(&holder), now);
            let (trusted, is_booted) = (&holder.trusted, boots(&holder, address));
            assert_eq!(is_booted, ours.is_empty(), "{ours:?} by {chain:?}, {trusted:?} trusted");
            SEEN[usize::from(is_booted)].fetch_add(1, Ordering::Relaxed);
        }
    };
    model::seen_at(OffsetDateTime::now_utc(), judge, 400);
    let seen = SEEN.each_ref().map(|many| many.load(Ordering::Relaxed));
    assert!(seen.iter().all(|many| *many > 4), "{seen:?}");
}
