//! By certificates: those that are kept and those that are served, on any date, and of a pair that cannot be served.

use std::fs;

use serde_json::{Value, json};

use super::{Report, Served, ca, one_error, pem, set_pem};
use crate::support::clock::set_clock;
use crate::support::machine::Machine;
use crate::support::openssl::openssl;
use crate::support::server::binary;
use crate::support::wait_until;

#[test]
fn a_pointer_config_boots_by_what_is_kept_and_by_what_is_served_before_and_after_a_rotation() {
    let served = Served::start();
    let oldest = served.with(|_| {});
    let url = served.config()["ignition"]["config"]["merge"][0]["source"].clone();
    let url = url.as_str().expect("a URL");
    let mut rotate = binary();
    rotate.args(["certs", "rotate", "--ca", "--state-dir", &served.state]);
    for round in 0..2 {
        for file in [&oldest, &served.own()] {
            let name = file.display();
            let Report { status, lines, error } = served.by_state(file);
            assert_eq!((status, &error[..]), (0, ""), "{round}: {lines:?}");
            let by = format!("according to the certificates of {}", served.state);
            assert_eq!(lines, [format!("{name}: boots from {url}, {by}")]);
            let Report { status, lines, error } = served.by_server(file);
            assert_eq!((status, &error[..]), (0, ""), "{round}: {lines:?}");
            let as_it = format!("as {} answers", served.address);
            assert_eq!(lines, [format!("{name}: boots from {url}, {as_it}")]);
        }
        let before = served.server.tls().shown_certificate().expect("a certificate");
        assert!(rotate.output().expect("the built binary").status.success());
        wait_until("the new pair", || {
            let shown = served.server.tls().shown_certificate().expect("a certificate");
            shown != before
        });
    }
}

#[test]
fn pointer_configs_that_the_certificates_lock_out_are_reported() {
    let served = Served::start();
    let elsewhere = served.with(|config| {
        let source = |host: &str| json!({"source": format!("https://{host}:22623/config/worker")});
        config["ignition"]["config"]["merge"] =
            [source("localhost"), source("192.0.2.1"), source("mcs.example.com")].into();
    });
    let unnamed = "cannot boot a machine: the serving certificate does not name ";
    let Report { status, lines, error } = served.by_state(&elsewhere);
    assert_eq!((status, lines.len()), (1, 2), "{lines:?}");
    assert!(lines[0].ends_with(&format!("{unnamed}192.0.2.1")), "{lines:?}");
    assert!(lines[1].ends_with(&format!("{unnamed}mcs.example.com")), "{lines:?}");
    assert_eq!(error, one_error(&elsewhere, 2));
    // The server says the same, and that the first one would be answered.
    let Report { status, lines, error } = served.by_server(&elsewhere);
    assert_eq!((status, lines.len()), (1, 3), "{lines:?}");
    assert!(lines[2].contains("boots from https://localhost:22623/config/worker"), "{lines:?}");
    assert_eq!(error, one_error(&elsewhere, 2));

    let directory = served.directory.path();
    let request =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let names = ["-subj", "/CN=unrelated", "-keyout", "key", "-out", "unrelated.pem"];
    openssl(directory, &[&request[..], &names].concat());
    let unrelated = fs::read_to_string(directory.join("unrelated.pem")).expect("a certificate");
    let foreign = served.with(|config| set_pem(config, &unrelated));
    served.assert_refused(&foreign, &["neither sent nor trusted"]);

    // A machine of spec 2 reads the first one only.
    let both = |config: &mut Value| {
        let own = pem(config);
        set_pem(config, &format!("{unrelated}{own}"));
    };
    assert_eq!(served.by_server(&served.with(both)).status, 0);
    let spec_2 = served.with(|config| {
        both(config);
        config["ignition"]["version"] = "2.2.0".into();
        let merge = config["ignition"]["config"]["merge"].take();
        config["ignition"]["config"] = json!({"append": merge});
    });
    for said in [served.by_state(&spec_2), served.by_server(&spec_2)] {
        assert_eq!((said.status, said.lines.len()), (1, 3), "{:?}", said.lines);
        assert!(said.lines[0].contains("reads only the first in spec 2"), "{:?}", said.lines);
        assert!(said.lines[1].contains("append[0].httpHeaders: unknown field"), "{:?}", said.lines);
        assert!(said.lines[2].contains("neither sent nor trusted"), "{:?}", said.lines);
    }
}

#[test]
fn a_clock_that_is_far_off_is_judged_by() {
    let served = Served::start();
    let at = |date: &str| -> Report {
        let mut command = binary();
        set_clock(&mut command, &format!("@{date} 00:00:00"));
        command.args(["certs", "check", "--state-dir", &served.state, "--pointer"]);
        Report::of(command.arg(served.own()))
    };
    let Report { status, lines, .. } = at("2060-01-01");
    assert_eq!(status, 1);
    assert!(
        lines[0].contains("cannot boot a machine: ") && lines[0].contains("expired at 20"),
        "{lines:?}"
    );
    let Report { status, lines, .. } = at("2020-01-01");
    assert_eq!(status, 1);
    assert!(lines[0].contains("is not valid before 20"), "{lines:?}");
}

#[test]
fn the_real_ignition_gives_up_where_a_ca_is_faulty() {
    let served = Served::start();
    let whole = pem(&served.config());
    let hash = format!("sha512-{}", "0".repeat(128));
    let faults: [&dyn Fn(&mut Value); 4] = [
        &|config| set_pem(config, &format!("{whole}\n")),
        &|config| set_pem(config, &whole[..200]),
        &|config| ca(config)["verification"] = json!({"hash": hash}),
        &|config| ca(config)["compression"] = "gzip".into(),
    ];
    for fault in faults {
        let file = served.with(fault);
        served.assert_refused(&file, &["certificateAuthorities[0] "]);
        let machine = Machine::new();
        let pointer = fs::read_to_string(&file).expect("a file");
        let mut stage = machine.start("fetch", &pointer);
        assert!(!stage.ended().success(), "{pointer}\n{}", stage.log());
        let log = stage.log();
        assert!(log.contains("Unable to") && log.contains(" CA ("), "{log}");
    }
}

#[test]
fn nobody_boots_by_a_pair_that_cannot_be_served() {
    let served = Served::start();
    let kept = served.copied();
    let directory = served.directory.path();
    let new_key = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    openssl(directory, &[&new_key[..], &["-out", "key"]].concat());
    let another = fs::read_to_string(directory.join("key")).expect("a key");
    let chain = fs::read_to_string(kept.state.join("tls.crt")).expect("a chain");
    for (pair, expected) in [
        (chain.clone(), "has no key"),
        (another + &chain, "its key does not belong to its certificate"),
    ] {
        fs::write(kept.state.join("tls.key"), &pair).expect("a writable folder");
        let Report { status, lines, error } = kept.check_pointer("worker", &[]);
        assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
        let place = kept.state.join("tls.key").display().to_string();
        assert!(error.contains(&format!("{place}: {expected}")), "{error}");
        assert_eq!(kept.check(&[]).status, 1);
    }
}

#[test]
fn a_url_without_a_port_is_warned_of_before_it_is_said_to_boot() {
    let served = Served::start();
    let port = served.server.secure().port();
    let file = served.with(|config| {
        let source = &mut config["ignition"]["config"]["merge"][0]["source"];
        *source = source.as_str().expect("a URL").replace(&format!(":{port}"), "").into();
    });
    let Report { status, lines, .. } = served.by_state(&file);
    assert_eq!(status, 0, "{lines:?}");
    assert!(lines[0].contains("warning: https://localhost/config/worker has no port"), "{lines:?}");
    let lines = served.by_state(&served.own()).lines;
    assert!(!lines.iter().any(|line| line.contains("no port")), "{lines:?}");
}
