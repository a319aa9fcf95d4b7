//! Machines on the page: filtered, sorted and paged without a script, each with a page, hostile ones as text.

use super::{open, sample_cluster};
use crate::support::browser::Browser;
use crate::support::http::{IGNITION, loopback};
use crate::support::server::Server;
use crate::support::wait_until;

fn open_path(server: &Server, browser: &mut Browser, path: &str) {
    browser.open(&format!("http://{}{path}", server.metrics().address()));
}

/// The first cells of the table of machines.
pub(super) const ROWS: &str = "[...document.querySelectorAll('#machines-table tbody th')].map(it => it.textContent).join(' ')";

fn ask(server: &Server, last: u8, pool: &str, user_agent: &str) {
    let client = server.plain().from(loopback(last));
    client.request("GET", &format!("/config/{pool}"), &[("User-Agent", user_agent)]);
}

#[test]
fn machines_are_found_by_forms_and_links_without_a_script() {
    let server = sample_cluster();
    for last in 10..20 {
        ask(&server, last, "master", IGNITION.1);
    }
    let mut browser = Browser::start();
    browser.disable_scripts(true);
    open_path(&server, &mut browser, "/");
    assert_eq!(browser.evaluate("document.getElementById('connection').textContent"), "");
    let all = browser.evaluate(ROWS);
    assert!(all.as_str().expect("text").starts_with("127.0.0.3 "), "{all}");
    for (path, rows) in [
        ("/?state=stuck", "127.0.0.3"),
        ("/?pool=worker&state=booting", "127.0.0.2"),
        (
            "/?text=127.0.0.1&sort=address&order=reverse",
            "127.0.0.19 127.0.0.18 127.0.0.17 127.0.0.16 \
          127.0.0.15 127.0.0.14 127.0.0.13 127.0.0.12 127.0.0.11 127.0.0.10",
        ),
        ("/?text=%3Cnothing%3E", ""),
    ] {
        open_path(&server, &mut browser, path);
        assert_eq!(browser.evaluate(ROWS), rows, "{path}");
    }
    // As people do it: a field, a button, and the head of a column.
    open_path(&server, &mut browser, "/");
    browser.evaluate("document.querySelector('[name=pool]').value = 'master'");
    browser.evaluate("document.querySelector('#filter button').click()");
    let is_at = |browser: &mut Browser, query: &str| {
        wait_until(query, || browser.evaluate("location.search") == query);
        wait_until("the page", || browser.evaluate("document.readyState") == "complete");
    };
    is_at(&mut browser, "?pool=master&state=&text=");
    browser.evaluate("document.querySelector('#machines-table thead a').click()");
    is_at(&mut browser, "?pool=master&sort=address");
    let rows = browser.evaluate(ROWS);
    assert!(rows.as_str().expect("text").starts_with("127.0.0.10 127.0.0.11 "), "{rows}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_machines_page_has_its_requests_and_the_next_command() {
    let server = sample_cluster();
    ask(&server, 3, "gpu", IGNITION.1);
    ask(&server, 3, "worker", IGNITION.1);
    let mut browser = open(&server);
    browser.evaluate("document.querySelector('a[href=\"/machines/127.0.0.3\"]').click()");
    wait_until("the machine", || {
        let rows = "document.querySelectorAll('#requests-table tbody tr').length";
        browser.evaluate("location.pathname") == "/machines/127.0.0.3"
            && browser.evaluate(rows) == 2
    });
    let text = browser.evaluate("document.body.textContent");
    let text = text.as_str().expect("text");
    let port = server.secure().port();
    for expected in [
        "booting: fetched its config",
        "config of pool gpu",
        "503: no pool has this name",
        &format!("machine-config-server inspect https://localhost:{port} worker --as 2.2"),
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let times = "document.querySelectorAll('#requests-table tbody tr')[1].children[2].textContent";
    assert_eq!(browser.evaluate(times), "2");
    for (path, status) in
        [("/machines/127.0.0.99", 404), ("/machines/x", 400), ("/machines/::ffff:127.0.0.3", 200)]
    {
        assert_eq!(server.metrics().get(path).status, status, "{path}");
    }
}

#[test]
fn what_a_hostile_machine_sends_is_text_in_a_browser() {
    let server = sample_cluster();
    let markup = "<script>window.owned=1</script><img src=x onerror=window.owned=1>";
    ask(&server, 9, "%3Cimg%20src=x%20onerror=window.owned=1%3E", markup);
    ask(
        &server,
        8,
        "%22%3E%3Cscript%3Ewindow.owned=1",
        "Ignition/\" onfocus=window.owned=1 autofocus",
    );
    let mut browser = Browser::start();
    for path in [
        "/",
        "/machines/127.0.0.9",
        "/machines/127.0.0.8",
        "/?text=%22%3E%3Cscript%3Ewindow.owned=1%3C/script%3E&pool=%3Cimg%20src=x%20onerror=window.owned=1%3E",
    ] {
        open_path(&server, &mut browser, path);
        wait_until("the stream", || {
            let status = browser.evaluate("document.getElementById('connection').textContent");
            status.as_str().is_some_and(|text| text.starts_with("Live"))
        });
        assert_eq!(browser.evaluate("typeof window.owned"), "undefined", "{path}");
        assert_eq!(
            browser.evaluate("document.images.length + document.scripts.length"),
            1,
            "{path}"
        );
    }
    // A policy that had to stop something would say so.
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let text = browser.evaluate("document.querySelector('#filter input').value");
    assert_eq!(text, "\"><script>window.owned=1</script>");
    let page = server.metrics().get("/");
    let policy = page.header("content-security-policy").expect("a policy");
    for part in
        ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "form-action 'self'"]
    {
        assert!(policy.split("; ").any(|it| it == part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[test]
fn times_are_in_utc_without_a_script_and_in_the_browsers_time_zone_with_it() {
    let server = sample_cluster();
    let mut browser = Browser::start();
    browser.move_to("Asia/Kolkata");
    let shown = "document.querySelector('#as-of time').textContent";
    let hour =
        |text: &str| text.split(':').next().expect("an hour").parse::<u32>().expect("a number");
    browser.disable_scripts(true);
    open_path(&server, &mut browser, "/");
    let utc = browser.evaluate(shown);
    let utc = utc.as_str().expect("text").to_owned();
    assert!(utc.ends_with(" UTC"), "{utc}");
    browser.disable_scripts(false);
    open_path(&server, &mut browser, "/");
    let local = browser.evaluate(shown);
    let local = local.as_str().expect("text").to_owned();
    assert!(!local.contains("UTC"), "{local}");
    // Five and a half hours more, at the half or the full hour.
    let later = (hour(&local) + 24 - hour(&utc)) % 24;
    assert!([5, 6].contains(&later), "{utc} is {local}");
    let title = browser.evaluate("document.querySelector('#as-of time').title");
    let title = title.as_str().expect("text");
    assert!(title.contains("day, ") && title.contains("GMT+5:30"), "{title}");
}
