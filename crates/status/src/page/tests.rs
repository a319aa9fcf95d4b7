//! Pages of servers with everything that there can be, and of hostile machines.

use model::history::Change;
use model::ledger::{Failed, Ledger, Request};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::overview_page::{TimeLine, time_line};
use super::*;
use crate::overview::{
    Certificate, ControllerOverview, MachineLine, Overview, PointerGroup, PointerStatus, Pool,
    RegistryInUse, Server, TrustMap, TrustedCertificate, sort,
};

const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

/// The page of all machines.
fn page(overview: &Overview) -> String {
    overview_page(overview, &MachineQuery::parse("")).unwrap()
}

fn overview(machines: u32) -> Overview {
    let ledger = Ledger::default();
    for number in 0..machines {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into();
        let user_agent = "Ignition/<b>2</b>";
        let answer = Err((503, "no pool has this name"));
        let request = Request {
            address,
            pool: "<x>",
            user_agent,
            spec: None,
            without_tls: false,
            answer,
            would_be_refused: None,
        };
        ledger.asked(&request, NOON);
    }
    let untrusting = "192.0.2.9".parse().unwrap();
    ledger.handshake_failed(untrusting, Failed::Untrusted, NOON);
    let machines = ledger.machines().into_iter().map(|machine| {
        let status = machine.boot_status(None, NOON);
        MachineLine { machine, status }
    });
    let mut machines: Vec<_> = machines.collect();
    sort(&mut machines);
    Overview {
        at: NOON,
        server: Server { version: "1".to_owned(), since: NOON },
        authority: "HOST:22623".to_owned(),
        not_ready: vec!["pool <i>: broken".to_owned()],
        degraded: Vec::new(),
        pools: vec![Pool {
            access: "audit".to_owned(),
            name: "worker".to_owned(),
            configuration: None,
            problem: Some("it has no configuration yet".to_owned()),
            ..Pool::default()
        }],
        machines: machines.into(),
        knows_nodes: false,
        named_machines: Vec::new(),
        waiting_machines: Vec::new(),
        approved_machines: Vec::new(),
        silent_servers: vec!["192.0.2.1:8797: no answer in time".to_owned()],
        certificates: vec![certificate()],
        trust: trust(),
        pointers: vec![PointerStatus { name: "worker.ign".to_owned(), problem: None }],
        registries: vec!["registry.example.com:5000".to_owned()],
        registries_without_ca: vec![RegistryInUse {
            host: "os.example.com".to_owned(),
            pools: vec!["infra".to_owned(), "worker".to_owned()],
        }],
        changes: vec![Change { at: NOON, what: "pool worker: a -> b".to_owned() }],
        older_changes: 3,
    }
}

fn certificate() -> Certificate {
    Certificate {
        subject: "machine-config-server".to_owned(),
        issuer: "a CA".to_owned(),
        key: "ECDSA P-256".to_owned(),
        hosts: vec!["api-int.example.com".to_owned()],
        not_before: NOON - Duration::days(365),
        not_after: NOON + Duration::days(9 * 365),
        renewal: NOON + Duration::days(7 * 365),
    }
}

#[test]
fn whatever_others_chose_is_text() {
    let page = page(&overview(1));
    assert!(page.contains("&#60;x&#62;") && !page.contains("<x>"), "{page}");
    assert!(page.contains("pool &#60;i&#62;: broken"), "{page}");
    assert!(!page.contains("<script>") && !page.contains(" style="), "{page}");
}

#[test]
fn all_there_is_to_see_is_on_it() {
    let page = page(&overview(2));
    for text in [
        "10.0.0.1",
        "192.0.2.9",
        "does not trust the serving certificate",
        "3 stuck",
        "it has no configuration yet",
        "api-int.example.com",
        "renewed in 7 years, valid for 9 years more",
        "worker.ign",
        "registry.example.com:5000",
        "os.example.com, for the image of infra, worker",
        "192.0.2.1:8797: no answer in time",
        "3 before these: the log has them.",
        "2026-11-21 12:00:00 UTC",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
}

#[test]
fn ten_thousand_machines_are_counted_and_a_hundred_shown() {
    let overview = overview(9_999);
    let page = page(&overview);
    assert!(page.contains("10000 stuck") && page.contains("Page 1 of 100"), "no counts");
    assert_eq!(page.matches("href=\"/machines/").count(), 100);
    assert!(page.len() < 128 << 10, "{}", page.len());
    let query = MachineQuery::parse("page=100&sort=address");
    let last = overview_page(&overview, &query).unwrap();
    assert!(last.contains("192.0.2.9") && last.contains("Page 100 of 100"), "no last page");
}

#[test]
fn the_form_shows_what_was_asked_for() {
    let query = MachineQuery::parse("pool=%3Cx%3E&state=stuck&text=%22%3E%3Cscript%3E&sort=last");
    let page = overview_page(&overview(3), &query).unwrap();
    for text in [
        "<option selected>&#60;x&#62;</option>",
        "<option selected>stuck</option>",
        "value=\"&#34;&#62;&#60;script&#62;\"",
        "aria-sort=\"descending\"",
        "0 are shown",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
}

#[test]
fn what_to_do_is_the_most_urgent_of_all() {
    let mut overview = overview(1);
    let advice = |overview: &Overview| {
        let page = page(overview);
        let advice = page.split("<p class=\"advice\">").nth(1).unwrap();
        advice.split("</p>").next().unwrap().to_owned()
    };
    assert!(advice(&overview).starts_with("Fix what keeps this server from being ready: pool"));
    overview.not_ready.clear();
    assert!(advice(&overview).starts_with("Open the pages of the 2 machines that are stuck"));
    overview.pointers[0].problem = Some("no CA".to_owned());
    assert!(advice(&overview).starts_with("Fix the pointer config that cannot boot a machine."));
    overview.certificates[0].not_after = NOON - Duration::DAY;
    assert!(advice(&overview).starts_with("Run machine-config-server certs check"));
    (overview.certificates, overview.pointers, overview.machines) = Default::default();
    assert!(advice(&overview).contains("<a href=\"/pools/worker\">"), "{}", advice(&overview));
    overview.pools.clear();
    assert!(advice(&overview).starts_with("Check the other servers"));
    overview.silent_servers.clear();
    assert!(advice(&overview).starts_with("Give a machine its pointer config"));
}

#[test]
fn machines_that_fetched_their_configs_are_counted_in_the_head() {
    let ledger = Ledger::default();
    for (address, minutes) in [("192.0.2.1", 1), ("192.0.2.2", 2), ("192.0.2.3", 60)] {
        let request = Request {
            address: address.parse().unwrap(),
            pool: "worker",
            user_agent: "Ignition/2.14.0",
            spec: None,
            without_tls: false,
            answer: Ok(("rendered-worker-1", "etag")),
            would_be_refused: None,
        };
        ledger.asked(&request, NOON - Duration::minutes(minutes));
    }
    let lines = ledger.machines().into_iter().map(|machine| {
        let status = machine.boot_status(None, NOON);
        MachineLine { machine, status }
    });
    let lines: Vec<_> = lines.collect();
    let figures = |knows_nodes| {
        let machines = lines.clone().into();
        let [booting, stuck, last, _] =
            head::figures(&Overview { machines, knows_nodes, ..overview(0) });
        [booting, stuck, last].map(|figure| format!("{} {}", figure.number, figure.label))
    };
    assert_eq!(figures(false), ["2 booting", "0 stuck", "1 served"]);
    assert_eq!(figures(true)[2], "0 joined");
}

#[test]
fn trust_is_a_picture_and_a_table() {
    let page = page(&overview(0));
    for text in [
        "<text class=\"title\" x=\"330\" y=\"19\">new &#60;CA&#62;</text>",
        "✓ boots",
        "<td data-label=\"Verified by\">old CA</td>",
        "<td data-label=\"Trusted by\">worker.ign</td>",
        "CA, sent to machines, until 2035-11-19",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
}

/// A serving certificate of a new CA, which an old one vouches for, and one pointer config.
fn trust() -> TrustMap {
    let certificate = |subject: &str, place: usize, issuers: &[usize]| TrustedCertificate {
        subject: subject.to_owned(),
        is_leaf: place == 0,
        is_sent: place < 2,
        not_after: NOON + Duration::days(9 * 365),
        issuers: issuers.to_vec(),
    };
    TrustMap {
        certificates: vec![
            certificate("machine-config-server", 0, &[1]),
            certificate("new <CA>", 1, &[2]),
            certificate("old CA", 2, &[]),
        ],
        groups: vec![PointerGroup {
            names: vec!["worker.ign".to_owned()],
            trusted: vec![2],
            problem: None,
        }],
    }
}

#[test]
fn a_machines_page_has_each_request_and_no_markup_of_others() {
    let ledger = Ledger::default();
    let address = "2001:db8::7".parse().unwrap();
    ledger.handshake_failed(address, Failed::Untrusted, NOON - Duration::minutes(5));
    let ask = |answer, minutes| {
        let request = Request {
            address,
            pool: "<img src=x>",
            user_agent: "Ignition/\u{202e}<script>alert(1)</script>",
            spec: Some(ignition::SpecVersion::V3_4),
            without_tls: false,
            answer,
            would_be_refused: Some("\"no\" token"),
        };
        ledger.asked(&request, NOON - Duration::minutes(minutes));
    };
    ask(Err((503, "there is no pool & no hope")), 4);
    ask(Err((503, "there is no pool & no hope")), 3);
    let machine = ledger.machines().remove(0);
    let status = machine.boot_status(None, NOON);
    let line = MachineLine { machine, status };
    let server = Server { version: "1".to_owned(), since: NOON };
    let page = machine_page(&MachineView {
        at: NOON,
        server: &server,
        line: &line,
        visits: &ledger.visits(address),
        is_pool_known: false,
        has_peers: true,
        authority: "mcs.example.com:22623",
    })
    .unwrap();
    for text in [
        "Machine 2001:db8::7",
        "does not trust the serving certificate",
        "config of pool &#60;img src=x&#62; in spec 3.4.0",
        "503: there is no pool &#38; no hope",
        "Ignition/\\u{202e}&#60;script&#62;",
        "inspect https://mcs.example.com:22623 POOL --as 3.4",
        "<td class=\"number\" data-label=\"Times\">2</td>",
        "Requests to other servers are counted above",
        "/runbook/machines.html\">A machine does not come up</a>",
        "To fix it: correct what /readyz of the server names",
        "; the machine retries, and boots then. Runbook: ",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
    assert!(!page.contains("<img") && !page.contains("<script>"), "{page}");
}

#[test]
fn what_an_enforced_pool_would_refuse_is_said_in_words_of_a_machine_that_got_its_config() {
    let ledger = Ledger::default();
    let line = |answer| {
        let request = Request {
            address: "192.0.2.7".parse().unwrap(),
            pool: "worker",
            user_agent: "Ignition/2.14.0",
            spec: Some(ignition::SpecVersion::V3_4),
            without_tls: false,
            answer,
            would_be_refused: Some("plain-port"),
        };
        ledger.asked(&request, NOON);
        let machine = ledger.machines().remove(0);
        let status = machine.boot_status(None, NOON);
        MachineLine { machine, status }
    };
    assert_eq!(line(Err((503, "no pool has this name"))).would_be_refused(), None);
    let served = line(Ok(("rendered-worker-1", "etag")));
    assert_eq!(served.would_be_refused().as_deref(), Some("request on the port without TLS"));
    // On a terminal too.
    let why = crate::overview::machine_row(&served).remove(2);
    let would = "with access mode enforce it would be refused: request on the port without TLS";
    assert!(why.ends_with(would), "{why}");
}

#[test]
fn the_headline_is_no_better_than_what_is_below_it() {
    let of = |not_ready: &[&str], degraded: &[&str], silent: &[&str], machines: u32| {
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let overview = Overview {
            not_ready: lines(not_ready),
            degraded: lines(degraded),
            named_machines: Vec::new(),
            silent_servers: lines(silent),
            ..overview(machines)
        };
        let [headline, _] = headlines(&overview);
        headline
    };
    assert_eq!(of(&[], &[], &[], 0), "1 machine is stuck");
    assert_eq!(of(&[], &["a"], &[], 27), "28 machines are stuck");
    assert_eq!(of(&["a"], &[], &[], 27), "Not ready, 28 stuck");

    let mut calm = overview(0);
    (calm.not_ready, calm.machines, calm.silent_servers) = Default::default();
    calm.pools[0].problem = None;
    let after = |change: fn(&mut Overview)| {
        let mut overview = calm.clone();
        change(&mut overview);
        headlines(&overview)
    };
    assert_eq!(after(|_| {}), ["Everything is OK"; 2]);
    for change in [
        (|it| it.degraded.push("a".to_owned())) as fn(&mut Overview),
        |it| it.pointers[0].problem = Some("no pool has this name".to_owned()),
        |it| it.certificates[0].not_after = NOON - Duration::seconds(1),
        |it| it.certificates[0].not_before = NOON + Duration::seconds(1),
    ] {
        assert_eq!(after(change), ["Ready, with warnings"; 2]);
    }
    let silent = after(|it| it.silent_servers.push("a".to_owned()));
    let broken = after(|it| it.pools[0].problem = Some("it has no configuration yet".to_owned()));
    assert_eq!([&silent[0], &broken[0]], ["Ready, with warnings"; 2]);
}

/// Of a server with this overview, and of a controller with as much of it as one has.
fn headlines(overview: &Overview) -> [String; 2] {
    let Overview { at, server, not_ready, degraded, certificates, pointers, .. } = overview.clone();
    let trust = TrustMap::default();
    let controller =
        ControllerOverview { at, server, not_ready, degraded, certificates, pointers, trust };
    [page(overview), controller_page(&controller).unwrap()].map(|page| {
        let headline = page.split("<h2 id=\"state\">").nth(1).unwrap();
        headline.split("</h2>").next().unwrap().to_owned()
    })
}

#[test]
fn a_time_line_says_where_now_is() {
    let overview = overview(0);
    let [certificate] = &overview.certificates[..] else { panic!("one") };
    let at = |now: OffsetDateTime| {
        let overview = Overview { at: now, ..overview.clone() };
        let TimeLine { renewal, now, words } = time_line(certificate, overview.at);
        (renewal, now, words)
    };
    assert_eq!(at(NOON).0, 800);
    assert_eq!(at(NOON).1, 100);
    let later = |days| at(NOON + Duration::days(days));
    assert_eq!(later(8 * 365).2, "due for renewal; valid for 365 days more");
    assert_eq!((later(9 * 365 + 3).1, &*later(9 * 365 + 3).2), (1_000, "expired 3 days ago"));
    assert_eq!(later(-366), (800, 0, "not valid yet, for a day".to_owned()));
}
