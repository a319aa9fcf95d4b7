//! A serving pair that an administrator brings: it is served as it is.

use std::fs;

use super::{Place, boot, identity, wait_until_logged, wait_until_reported};
use crate::support::http::Client;
use crate::support::openssl::openssl;
use crate::support::wait_until;

/// A root of another CA, whose key is kept elsewhere, with a pair for `localhost`.
struct Own {
    place: Place,
}

impl Own {
    /// With the pair signed by the root, or by an intermediate below it.
    fn pair(has_intermediate: bool) -> Self {
        let place = Place::empty();
        let directory = place.directory.path();
        let p256 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let root = ["req", "-x509", "-days", "3650", "-subj", "/CN=own root"];
        let files = ["-keyout", "root.key", "-out", "root.pem"];
        openssl(directory, &[&root[..], &p256, &files].concat());
        let sign = |name: &str, issuer: &str, extensions: &str| {
            let (key, request, pem) =
                (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
            let (by, by_key) = (format!("{issuer}.pem"), format!("{issuer}.key"));
            let subject = format!("/CN={name}");
            let new = ["req", "-new", "-subj", &subject, "-keyout", &key, "-out", &request];
            openssl(directory, &[&new[..], &p256].concat());
            fs::write(directory.join("extensions"), extensions).expect("a writable folder");
            let signed = ["x509", "-req", "-in", &request, "-CA", &by, "-CAkey", &by_key];
            let out = ["-days", "3650", "-CAcreateserial", "-extfile", "extensions", "-out", &pem];
            openssl(directory, &[&signed[..], &out].concat());
        };
        let mut issuer = "root";
        if has_intermediate {
            sign("intermediate", "root", "basicConstraints=critical,CA:TRUE\n");
            issuer = "intermediate";
        }
        sign("leaf", issuer, "subjectAltName=DNS:localhost\n");
        let read = |name: &str| fs::read_to_string(directory.join(name)).expect("a file");
        let mut chain = read("leaf.pem");
        if has_intermediate {
            chain += &read("intermediate.pem");
        }
        place.write("tls.crt", chain);
        place.write("tls.key", read("leaf.key"));
        place.write("ca.crt", read("root.pem"));
        Self { place }
    }

    /// What a machine of the administrator's has, who trusts the root alone.
    fn pointer(&self) -> String {
        let root = fs::read(self.place.directory.path().join("root.pem")).expect("a file");
        let url = "https://localhost:22623/config/worker";
        let spec = ignition::SpecVersion::V3_1;
        ignition::pointer(url, &root, spec).to_string()
    }

    /// Serves it, and it is the one that is shown.
    fn assert_served(&self, flags: &[&str]) {
        let server = self.place.serve(None, flags);
        let root = fs::read(self.place.directory.path().join("root.pem")).expect("a file");
        let shown = Client::tls(server.secure(), &root).shown_certificate();
        assert_eq!(shown.expect("a certificate"), self.place.certificates("tls.crt")[0].der());
        self.place.assert_boots(&self.pointer());
        self.place.assert_boots(&self.place.pointer());
    }
}

#[test]
fn an_own_pair_with_only_what_machines_use_or_an_intermediate_is_served_unchanged() {
    for has_intermediate in [false, true] {
        let own = Own::pair(has_intermediate);
        let chain = identity(&own.place.file("tls.crt"));
        let key = own.place.text("tls.key");
        own.assert_served(&[]);
        assert!(own.place.text("tls.key").starts_with(&key));
        let pair = identity(&own.place.file("tls.key"));
        let more = ["--host", "mcs.example.com", "--host", "192.0.2.1"];
        for flags in [&more[..2], &more] {
            own.assert_served(flags);
            assert_eq!(identity(&own.place.file("tls.crt")), chain);
            assert_eq!(identity(&own.place.file("tls.key")), pair);
        }
        assert_eq!(own.place.certificates("ca.crt")[0].common_name, "own root");
        own.place.certs(&["check"]).done();

        // Asked for, it is refused and says why; forced, it is done.
        for arguments in [&["rotate"][..], &["rotate", "--ca"]] {
            own.place.certs(arguments).refused(&[
                "is refused (requested): afterwards ",
                "cannot boot a machine",
                "or use --force to do it regardless",
            ]);
            assert_eq!(identity(&own.place.file("tls.key")), pair);
        }
        own.place.certs(&["rotate", "--force"]).done();
        assert_ne!(identity(&own.place.file("tls.key")), pair);
        own.place.assert_boots(&own.place.pointer());
        assert!(!own.place.boots(&own.pointer()));
        // What was replaced is kept.
        assert!(own.place.text("ca.key").contains("KEPT SERVING PAIR"));
    }
}

#[test]
fn a_file_that_asks_for_what_is_refused_waits_until_it_is_forced_and_no_command_takes_it_back() {
    let own = Own::pair(false);
    let server = own.place.serve(None, &[]);
    let pair = identity(&own.place.file("tls.key"));
    let request = own.place.file("rotate/serving");
    fs::write(&request, "").expect("a request");
    wait_until_logged(&server, "is refused (requested): afterwards ");
    wait_until_reported(&server, "certificates: ");
    own.place.certs(&["rotate", "--ca"]).refused(&["is refused (requested): afterwards "]);
    assert!(request.exists() && !own.place.file("rotate/ca").exists());
    assert_eq!(identity(&own.place.file("tls.key")), pair);

    fs::write(&request, "by hand --force\n").expect("a request");
    let is_done = || !request.exists() && !request.with_extension("begun").exists();
    wait_until("the end of the request", is_done);
    assert_ne!(identity(&own.place.file("tls.key")), pair);
    own.place.assert_boots(&own.place.pointer());
}

#[test]
fn an_own_pair_whose_root_nobody_brought_is_served_and_what_lacks_is_reported() {
    let own = Own::pair(true);
    fs::remove_file(own.place.file("ca.crt")).expect("a file");
    let chain = identity(&own.place.file("tls.crt"));
    for _ in 0..2 {
        drop(own.place.serve(None, &["--host", "mcs.example.com"]));
        assert_eq!(identity(&own.place.file("tls.crt")), chain);
        own.place.assert_boots(&own.pointer());
    }
}

#[test]
fn the_real_ignition_boots_with_an_own_pair_behind_an_intermediate() {
    let own = Own::pair(true);
    let server = own.place.serve(None, &[]);
    boot(&own.pointer(), &server);
    boot(&own.place.pointer(), &server);
}
