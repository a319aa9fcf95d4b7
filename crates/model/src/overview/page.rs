//! The overview as a page: HTML that needs no script, for a browser behind `kubectl port-forward`.

use askama::Template;
use time::{Duration, OffsetDateTime};

use super::machine_row::moment;
use super::{Certificate, ControllerOverview, MachineLine, Overview, PointerStatus, Pool};
use crate::ledger::Severity;

/// Style sheet of the page.
pub const STYLE: &str = include_str!("style.css");
/// Maximum number of machines on the page. The JSON has all.
const MAX_ROWS: usize = 500;
/// The width of a time line, in its own units.
const WIDTH: i64 = 1_000;

/// The page of an overview.
pub fn page(overview: &Overview) -> Result<String, askama::Error> {
    Page { title: "machine-config-server", overview }.render()
}

#[derive(Template)]
#[template(path = "page.html", config = "src/overview/askama.toml")]
struct Page<'a> {
    title: &'static str,
    overview: &'a Overview,
}

/// The page of a controller.
pub fn controller_page(overview: &ControllerOverview) -> Result<String, askama::Error> {
    ControllerPage { title: "machine-config-server controller", overview }.render()
}

#[derive(Template)]
#[template(path = "controller.html", config = "src/overview/askama.toml")]
struct ControllerPage<'a> {
    title: &'static str,
    overview: &'a ControllerOverview,
}

/// Validity of a certificate as a line, with the positions of renewal and now.
struct TimeLine {
    renewal: i64,
    now: i64,
    words: String,
}

impl Page<'_> {
    fn headline(&self) -> String {
        let Overview { at, not_ready, degraded, silent_servers, .. } = self.overview;
        let Overview { pools, certificates, pointers, .. } = self.overview;
        let is_calm = degraded.is_empty()
            && silent_servers.is_empty()
            && pools.iter().all(|pool| pool.problem.is_none())
            && all_boot(certificates, pointers, *at);
        let state = headline(not_ready, is_calm);
        match (self.overview.count(Severity::Stuck), not_ready.is_empty()) {
            (0, _) => state.to_owned(),
            (1, true) => "1 machine is stuck".to_owned(),
            (stuck, true) => format!("{stuck} machines are stuck"),
            (stuck, false) => format!("{state}, {stuck} stuck"),
        }
    }

    /// Number of machines of each rank, including those that are not on the page.
    fn counts(&self) -> Vec<(&'static str, usize)> {
        let ranks = [
            Severity::Stuck,
            Severity::Booting,
            Severity::Served,
            Severity::Joined,
            Severity::Visitor,
        ];
        let counts = ranks.map(|rank| (rank.label(), self.overview.count(rank)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    fn shown(&self) -> &[MachineLine] {
        &self.overview.machines[..self.overview.machines.len().min(MAX_ROWS)]
    }

    fn left_out(&self) -> usize {
        self.overview.machines.len().saturating_sub(MAX_ROWS)
    }
}

impl ControllerPage<'_> {
    fn headline(&self) -> &'static str {
        let ControllerOverview { at, not_ready, degraded, certificates, pointers, .. } =
            self.overview;
        let is_calm = degraded.is_empty() && all_boot(certificates, pointers, *at);
        headline(not_ready, is_calm)
    }
}

/// State in a few words. `is_calm` is false if an administrator should know anything else.
fn headline(not_ready: &[String], is_calm: bool) -> &'static str {
    if !not_ready.is_empty() {
        "Not ready"
    } else if !is_calm {
        "Ready, with something to look at"
    } else {
        "Everything is in order"
    }
}

/// Returns true if all certificates are valid at `now`, and machines boot from all pointer configs.
fn all_boot(certificates: &[Certificate], pointers: &[PointerStatus], now: OffsetDateTime) -> bool {
    let is_valid = |it: &Certificate| (it.not_before..=it.not_after).contains(&now);
    certificates.iter().all(is_valid) && pointers.iter().all(|it| it.problem.is_none())
}

impl Pool {
    fn specs_in_words(&self) -> String {
        if self.specs.is_empty() { "none yet".to_owned() } else { self.specs.join(", ") }
    }
}

/// The time line of a certificate, seen at `now`.
fn time_line(certificate: &Certificate, now: OffsetDateTime) -> TimeLine {
    let Certificate { not_before, not_after, renewal, .. } = certificate;
    let whole = (*not_after - *not_before).whole_seconds().max(1);
    let at = |time: OffsetDateTime| {
        let share = (time - *not_before).whole_seconds().saturating_mul(WIDTH) / whole;
        share.clamp(0, WIDTH)
    };
    let left = |until: OffsetDateTime| days(until - now);
    let words = if now < *not_before {
        format!("not valid yet, for {}", left(*not_before))
    } else if now > *not_after {
        format!("expired {} ago", days(now - *not_after))
    } else if now > *renewal {
        format!("due for renewal; valid for {} more", left(*not_after))
    } else {
        format!("renewed in {}, valid for {} more", left(*renewal), left(*not_after))
    };
    TimeLine { renewal: at(*renewal), now: at(now), words }
}

fn days(time: Duration) -> String {
    match time.whole_days() {
        0 => "less than a day".to_owned(),
        1 => "a day".to_owned(),
        days @ 2..=729 => format!("{days} days"),
        days => format!("{} years", (days + 182) / 365),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::{Change, PointerStatus, RegistryInUse, Server, sort};
    use super::*;
    use crate::ledger::{Failed, Ledger, Request};

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn overview(machines: u32) -> Overview {
        let ledger = Ledger::default();
        for number in 0..machines {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into();
            let user_agent = "Ignition/<b>2</b>";
            let answer = Err((503, "there is no pool of this name"));
            let request = Request {
                address,
                pool: "<x>",
                user_agent,
                spec: None,
                answer,
                would_be_refused: None,
            };
            ledger.asked(&request, NOON);
        }
        let untrusting = "192.0.2.9".parse().unwrap();
        ledger.handshake_failed(untrusting, Failed::Untrusted, NOON);
        let machines = ledger.machines().into_iter().map(|machine| {
            let standing = machine.standing(None, NOON);
            MachineLine { machine, standing }
        });
        let mut machines: Vec<_> = machines.collect();
        sort(&mut machines);
        Overview {
            at: NOON,
            server: Server { version: "1".to_owned(), since: NOON },
            not_ready: vec!["pool <i>: broken".to_owned()],
            degraded: Vec::new(),
            pools: vec![Pool {
                access: "audit".to_owned(),
                name: "worker".to_owned(),
                configuration: None,
                problem: Some("it has no configuration yet".to_owned()),
                specs: Vec::new(),
            }],
            machines: machines.into(),
            silent_servers: vec!["192.0.2.1:8797: no answer in time".to_owned()],
            certificates: vec![Certificate {
                subject: "machine-config-server".to_owned(),
                issuer: "a CA".to_owned(),
                key: "ECDSA P-256".to_owned(),
                hosts: vec!["api-int.example.com".to_owned()],
                not_before: NOON - Duration::days(365),
                not_after: NOON + Duration::days(9 * 365),
                renewal: NOON + Duration::days(7 * 365),
            }],
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

    #[test]
    fn whatever_others_chose_is_text() {
        let page = page(&overview(1)).unwrap();
        assert!(page.contains("&#60;x&#62;") && !page.contains("<x>"), "{page}");
        assert!(page.contains("pool &#60;i&#62;: broken"), "{page}");
        assert!(!page.contains("<script") && !page.contains(" style="), "{page}");
    }

    #[test]
    fn all_there_is_to_see_is_on_it() {
        let page = page(&overview(2)).unwrap();
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
            "2026-11-21 12:00:00Z",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
    }

    #[test]
    fn ten_thousand_machines_are_counted_and_some_shown() {
        let overview = overview(9_999);
        let page = page(&overview).unwrap();
        assert!(page.contains("10000 stuck") && page.contains("9500 more"), "no counts");
        assert!(page.len() < 1 << 20, "{}", page.len());
    }

    #[test]
    fn the_headline_is_no_better_than_what_is_below_it() {
        let of = |not_ready: &[&str], degraded: &[&str], silent: &[&str], machines: u32| {
            let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let overview = Overview {
                not_ready: lines(not_ready),
                degraded: lines(degraded),
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
        assert_eq!(after(|_| {}), ["Everything is in order"; 2]);
        for change in [
            (|it| it.degraded.push("a".to_owned())) as fn(&mut Overview),
            |it| it.pointers[0].problem = Some("there is no pool of this name".to_owned()),
            |it| it.certificates[0].not_after = NOON - Duration::seconds(1),
            |it| it.certificates[0].not_before = NOON + Duration::seconds(1),
        ] {
            assert_eq!(after(change), ["Ready, with something to look at"; 2]);
        }
        let silent = after(|it| it.silent_servers.push("a".to_owned()));
        let broken =
            after(|it| it.pools[0].problem = Some("it has no configuration yet".to_owned()));
        assert_eq!([&silent[0], &broken[0]], ["Ready, with something to look at"; 2]);
    }

    /// Headlines of a server with this overview, and of a controller with its common parts.
    fn headlines(overview: &Overview) -> [String; 2] {
        let Overview { at, server, not_ready, degraded, certificates, pointers, .. } =
            overview.clone();
        let controller =
            ControllerOverview { at, server, not_ready, degraded, certificates, pointers };
        [page(overview).unwrap(), controller_page(&controller).unwrap()].map(|page| {
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
}
