//! By what is in the file: faults, warnings, what has no effect, and what is secret.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{Report, Served, check, merge, one_error, set_pem};

#[test]
fn files_from_which_no_machine_boots_are_reported_by_their_fault() {
    let served = Served::start();
    let config = served.config().to_string();
    for (contents, expected) in [
        (&b""[..], "empty"),
        (b"#!/bin/sh\necho hello\n", "not an Ignition config, but a script"),
        (b"{\"ignition\": ", "not JSON: "),
        (BASE64.encode(&config).as_bytes(), "encoded in base64"),
        (b"{\"ignition\": {\"version\": \"3.9.0\"}}", "\"3.9.0\" is not a known Ignition spec"),
    ] {
        served.assert_refused(&served.file(contents), &[expected]);
    }
    let no_ca = served.with(|config| config["ignition"]["security"] = json!({}));
    served.assert_refused(&no_ca, &["has no certificateAuthorities"]);
    let no_tls = served.with(|config| {
        config["ignition"]["config"]["merge"][0]["source"] =
            "http://localhost:22624/config/worker".into();
        set_pem(config, "no PEM");
    });
    served.assert_refused(&no_tls, &["certificateAuthorities[0] has no certificate", "has no TLS"]);

    let missing = served.directory.path().join("missing");
    let large = served.file(&vec![b' '; 2 << 20]);
    for (file, expected) in [
        (missing.as_path(), "No such file or directory"),
        (served.directory.path(), "is not a regular file"),
        (&large, "has more than 1048576 bytes, which no platform accepts as user data"),
        (Path::new("/dev/zero"), "is not a regular file"),
    ] {
        let Report { status, lines, error } = served.by_state(file);
        assert_eq!((status, lines.len(), error.lines().count()), (1, 0, 1), "{lines:?} {error}");
        let file = file.display();
        assert!(
            error.starts_with(&format!("machine-config-server: --pointer {file}: ")),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_warning_keeps_nobody_from_booting() {
    let served = Served::start();
    let large = served.with(|config| config["x"] = "x".repeat(16 * 1024).into());
    for said in [served.by_state(&large), served.by_server(&large)] {
        assert_eq!((said.status, said.lines.len()), (0, 3), "{:?}", said.lines);
        let start = format!("{}: warning: has ", large.display());
        assert!(said.lines[0].starts_with(&start), "{:?}", said.lines);
        assert!(said.lines[0].ends_with(" bytes, and EC2 accepts 16384 bytes of user data"));
        assert!(said.lines[1].ends_with("warning: x: unknown field, ignored"), "{:?}", said.lines);
        assert!(said.lines[2].contains(": boots from https://"), "{:?}", said.lines);
    }
}

type Change = fn(&mut Value);

#[test]
fn a_pointer_config_that_is_kept_and_broken_is_reported_by_the_check() {
    let served = Served::start();
    let copy = served.copied();
    let kept = copy.pointer("worker");
    let check = || copy.check(&[]);
    assert_eq!(check().status, 0);
    let own = fs::read(&kept).expect("a file");
    let name = kept.display().to_string();
    let faults: [(Change, &str); 6] = [
        (|it| it["ignition"]["timeouts"] = json!({"httpTotal": -1}), "a machine gives up"),
        (|it| merge(it)["compression"] = "gzip".into(), "has the compression gzip"),
        (|it| merge(it)["httpHeaders"] = json!([{"name": "X"}]), "has no value"),
        (|it| merge(it)["source"] = "https://localhost:0/config/worker".into(), "port 0"),
        (|it| it["ignition"]["config"]["replace"] = json!({"source": ""}), "an empty source"),
        (
            |it| merge(it)["source"] = "https://localhost:1/config/nobody".into(),
            "pool nobody not found",
        ),
    ];
    for (change, expected) in faults {
        fs::write(&kept, &own).expect("a writable folder");
        fs::copy(served.with(change), &kept).expect("a writable folder");
        let Report { status, lines, .. } = check();
        assert_eq!(status, 1, "{expected}: {lines:?}");
        let start = format!("{name} cannot boot a machine: ");
        let reported = lines.iter().find(|line| line.starts_with(&start));
        assert!(reported.is_some_and(|line| line.contains(expected)), "{expected}: {lines:?}");
    }
    for text in [&b"{\"ignition\": "[..], b"#!/bin/sh\n", b""] {
        fs::write(&kept, text).expect("a writable folder");
        let Report { status, lines, .. } = check();
        assert!(status == 1 && lines.iter().any(|line| line.starts_with(&name)), "{lines:?}");
    }
}

#[test]
fn what_is_secret_in_a_url_is_not_printed() {
    let served = Served::start();
    let file = served.with(|config| {
        let source = &mut config["ignition"]["config"]["merge"][0]["source"];
        let url = source.as_str().expect("a URL").replace("https://", "https://me:hunter2@");
        *source = json!(format!("{url}?token=s3cr3t-t0ken"));
    });
    let mut said = vec![served.by_state(&file), served.by_server(&file)];
    let compressed = served.with(|config| {
        let merge = merge(config);
        let url =
            merge["source"].as_str().expect("a URL").replace("https://", "https://me:hunter2@");
        merge["source"] = url.into();
        merge["compression"] = "gzip".into();
    });
    said.push(served.by_state(&compressed));
    for said in said {
        let text = said.lines.concat();
        assert!(text.contains("https://") && text.contains("/config/worker"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn what_has_no_effect_is_reported_and_scripts_get_json() {
    let served = Served::start();
    let file = served.with(|config| {
        config["ignition"]["confg"] = json!({});
        config["storage"] = json!({"files": [{"path": "/a", "mode": 644}]});
    });
    let name = file.display().to_string();
    let ignored = [
        "ignition.confg: unknown field, ignored",
        "storage.files[0].mode: 644 is 1204 in octal; for 0644 write 420",
    ];
    for against in [["--state-dir", &served.state], ["--connect", &served.address]] {
        let json = |file: &Path| {
            let said = check(file, &[&against[..], &["--json"]].concat());
            let report: Value = serde_json::from_str(&said.lines.concat()).expect("JSON");
            (said, report)
        };
        let plain = check(&file, &against);
        assert_eq!((plain.status, plain.lines.len()), (0, 3), "{:?}", plain.lines);
        for (line, ignored) in plain.lines.iter().zip(ignored) {
            assert_eq!(*line, format!("{name}: warning: {ignored}"));
        }
        let (said, report) = json(&file);
        assert_eq!(said.status, 0, "{}", said.error);
        let expected = json!({
            "name": name, "boots": true, "faults": [], "warnings": [], "ignored": ignored,
            "from": [plain.lines[2]],
        });
        assert_eq!(report, expected);
        let strict = check(&file, &[&against[..], &["--strict"]].concat());
        assert_eq!((strict.status, &strict.lines), (1, &plain.lines));
        let refused = "--strict refuses fields without effect: 2";
        assert!(strict.error.contains(refused), "{}", strict.error);

        let own = check(&served.own(), &[&against[..], &["--strict"]].concat());
        assert_eq!(own.status, 0, "{:?} {}", own.lines, own.error);
        let directory = tempfile::tempdir().expect("a temporary folder");
        let broken = directory.path().join("broken.ign");
        fs::write(&broken, "#!/bin/sh").expect("a write");
        let (said, report) = json(&broken);
        assert_eq!((said.status, said.error), (1, one_error(&broken, 1)));
        let fault = report["faults"][0].as_str().expect("a fault");
        assert!(report["boots"] == false && fault.contains("but a script"), "{report}");
    }
}
