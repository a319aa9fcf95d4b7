//! How the pages look: at all widths, in light and dark, by keyboard, to screen readers, and in the book.

use serde_json::{Value, json};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

use super::{open, sample_cluster};
use crate::support::browser::{Browser, pictures};
use crate::support::http::loopback;
use crate::support::in_repository;
use crate::support::server::Server;
use crate::support::wait_until;

/// Widths from a small phone to a large screen.
const WIDTHS: [u32; 5] = [320, 768, 1136, 1280, 2560];

#[test]
fn all_pages_look_good_in_light_and_dark_from_a_phone_to_a_large_screen() {
    let (server, _state) = busy_cluster();
    let mut browser = Browser::start();
    let overview =
        ["body", ".stuck", ".good", ".served", "thead th", "a", ".tile .note", ".legend .booting"];
    let of_machine = ["body", ".bad", ".command", "dt", "a"];
    let of_pool = ["body", ".good", "dt", "thead th", "a"];
    for (name, path, selectors) in [
        ("overview", "/", &overview[..]),
        ("machine", "/machines/127.0.0.3", &of_machine),
        ("pool", "/pools/worker", &of_pool),
    ] {
        browser.open(&format!("http://{}{path}", server.metrics().address()));
        browser.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)");
        for (width, scheme) in WIDTHS.into_iter().flat_map(|it| [(it, "light"), (it, "dark")]) {
            browser.look(width, scheme);
            browser.picture(&pictures().join(format!("{name}-{scheme}-{width}.png")));
            let overflow =
                "document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(browser.evaluate(overflow), 0, "{path}: {width} pixels are not enough");
            assert_eq!(browser.evaluate(WIDE_TABLES), "", "{path}: {width} pixels are not enough");
            // WCAG 2.1 asks for 4.5 between text and what is behind it.
            for selector in selectors {
                let contrast = browser.evaluate(&format!("({CONTRAST})('{selector}')"));
                let contrast =
                    contrast.as_f64().unwrap_or_else(|| panic!("{path} has no {selector}"));
                assert!(contrast >= 4.5, "{selector} in {scheme}: {contrast}");
            }
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The tables that scroll sideways.
const WIDE_TABLES: &str = "[...document.querySelectorAll('.scroll')]
    .filter(it => it.querySelector('table') && it.scrollWidth > it.clientWidth).map(it => it.id).join()";

/// How far the text of what a selector finds stands out from the page, or from the box of a drawing.
const CONTRAST: &str = "selector => {
    const of = text => {
        const [r, g, b] = text.match(/\\d+/g).map(Number)
            .map(it => it / 255).map(it => it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const element = document.querySelector(selector);
    const box = element instanceof SVGElement && element.parentNode.querySelector('rect');
    const ink = of(box ? getComputedStyle(element).fill : getComputedStyle(element).color);
    const paper = of(box ? getComputedStyle(box).fill : getComputedStyle(document.body).backgroundColor);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}";

/// The sample cluster with machines that booted within the last day.
fn busy_cluster() -> (Server, TempDir) {
    let machines: Vec<Value> = (0..120).map(machine).collect();
    let state = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(state.path().join("ledger.json"), json!(machines).to_string()).expect("a write");
    let server = Server::serve_with_state(&in_repository("ignition-fixtures"), state.path());
    // A request of its own is listed on a machine's page.
    let client = server.plain().from(loopback(3));
    assert_eq!(client.request("GET", "/config/gpu", &[super::IGNITION]).status, 503);
    // The certificates and pointer configs are there, and the page has nothing to complain of but the machines.
    wait_until("the pools", || server.metrics().get("/readyz").status == 200);
    (server, state)
}

/// Most machines got their config, more of them lately; each tenth did not.
fn machine(number: u32) -> Value {
    let since = OffsetDateTime::now_utc() - Duration::minutes(i64::from(number * number / 12));
    let text = |time: OffsetDateTime| {
        let time = time.replace_nanosecond(0).expect("a whole second");
        time.format(&time::format_description::well_known::Rfc3339)
            .expect("a year with four digits")
    };
    let pool = ["worker", "worker", "infra", "master"][number as usize % 4];
    let mut requests = json!({
        "pool": pool, "user_agent": "Ignition/2.18.0", "spec": "3.4.0",
        "times": 1 + number % 3, "since": text(since), "last": text(since),
    });
    if number % 10 == 5 {
        let reason = "the pool has no rendered config yet";
        requests["refused"] = json!({"status": 503, "reason": reason});
    } else {
        let config = format!("rendered-{pool}-3f2a9c51d7e04b68");
        requests["served"] = json!({"config": config, "sha256": "0".repeat(64)});
    }
    let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
    json!({"address": address, "first": text(since), "last": text(since), "requests": requests})
}

#[test]
fn the_pictures_of_the_book_can_be_taken() {
    let (server, _state) = busy_cluster();
    let mut browser = Browser::start();
    browser.move_to("Europe/Berlin");
    for (name, path, height) in [
        ("page", "/", 1100),
        ("page-machine", "/machines/127.0.0.3", 560),
        ("page-pool", "/pools/worker", 900),
        ("page-trust", "/#trust-section", 560),
    ] {
        browser.photograph(server.metrics().address(), path, height, name);
    }
}

#[test]
fn it_is_read_by_keyboard_and_by_screen_readers() {
    let server = sample_cluster();
    // These pools are not enforced: each has a line of what unauthenticated clients can read.
    wait_until("what unauthenticated clients can read", || {
        let told = server.page("/readyz");
        told.lines().count() == 4
    });
    let mut browser = open(&server);
    let told = browser.read_aloud();
    let has = |role: &str, name: &str| told.iter().any(|it| it.0 == role && it.1 == name);
    for (role, name) in [
        ("heading", "machine-config-server"),
        ("heading", "1 machine is stuck"),
        ("navigation", "On this page"),
        ("region", "Machines"),
        ("columnheader", "Why"),
        ("rowheader", "127.0.0.3"),
        ("link", "To the machines"),
        ("status", ""),
        ("region", "Trust"),
        ("combobox", "State"),
        ("searchbox", "Text"),
        ("button", "Show"),
    ] {
        assert!(has(role, name), "{role} {name:?} is not in {told:?}");
    }
    // Nothing is told by colour alone, and the time lines have words.
    assert!(has("StaticText", "stuck") && has("StaticText", "booting"));
    let words = told.iter().find(|it| it.0 == "image" && it.1.starts_with("renewed in "));
    assert!(words.is_some(), "{told:?}");
    let boots = told.iter().find(|it| it.0 == "image" && it.1.starts_with("Last hour: 2 boots: "));
    assert!(boots.is_some(), "{told:?}");

    let focused = "document.activeElement.textContent";
    browser.press("Tab", 9);
    assert_eq!(browser.evaluate(focused), "To the machines");
    for expected in ["Reload", "Boots", "Pools", "Machines", "Certificates", "Trust"] {
        browser.press("Tab", 9);
        assert_eq!(browser.evaluate(focused), expected);
    }
    assert_eq!(browser.evaluate("document.documentElement.lang"), "en");
    assert_eq!(browser.evaluate("document.title"), "1 stuck: machine-config-server");
}
