//! The page keeps itself up to date: by events, in a real browser, and for as many as can be.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::{manifests, open, sample_cluster};
use crate::support::browser::Browser;
use crate::support::http::{IGNITION, connect_from, loopback};
use crate::support::server::Server;
use crate::support::stopwatch::{Stopwatch, once_within};
use crate::support::wait_until;

/// Streams that a server has at a time.
const STREAMS: usize = 32;

/// A stream of events that was asked for.
struct Events(TcpStream);

impl Events {
    fn of_events(server: &Server, from: u8) -> Self {
        let mut stream =
            connect_from(loopback(from), server.metrics().address()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request");
        Self(stream)
    }

    /// What comes next, to the end of this text.
    fn read_to(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("more of the stream");
            text.extend(byte);
        }
        String::from_utf8(text).expect("text")
    }

    fn status(&mut self) -> String {
        let head = self.read_to("\r\n\r\n");
        head.split(' ').nth(1).expect("a status").to_owned()
    }
}

fn boot(server: &Server, last: u8) {
    let client = server.plain().from(loopback(last));
    assert_eq!(client.request("GET", "/config/worker", &[IGNITION]).status, 200);
}

#[test]
fn a_boot_is_shown_within_a_second_of_its_happening() {
    let server = sample_cluster();
    let mut browser = open(&server);
    wait_until("the stream", || {
        let status = browser.evaluate("document.getElementById('connection').textContent");
        status.as_str().is_some_and(|text| text.starts_with("Live"))
    });
    // What was opened, scrolled to and focused stays so.
    browser.evaluate("document.querySelector('#machines-table').focus()");
    let focused = "document.activeElement.id";
    assert_eq!(browser.evaluate(focused), "machines-table");
    once_within(Duration::from_secs(1), "a boot to be shown", |attempt| {
        let last = 10 + u8::try_from(attempt).expect("a small number");
        boot(&server, last);
        let booted = Stopwatch::start();
        let row = format!("document.body.textContent.includes('127.0.0.{last}')");
        wait_until("the machine", || browser.evaluate(&row) == true);
        booted.took()
    });
    assert_eq!(browser.evaluate(focused), "machines-table");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_page_without_a_stream_looks_again_every_few_seconds() {
    let server = sample_cluster();
    let mut held: Vec<_> = (0..STREAMS).map(|_| Events::of_events(&server, 2)).collect();
    for stream in &mut held {
        assert_eq!(stream.status(), "200");
    }
    let mut browser = open(&server);
    let shows = |browser: &mut Browser, text: &str| {
        let text = format!("document.body.textContent.includes('{text}')");
        wait_until(&text, || browser.evaluate(&text) == true);
    };
    shows(&mut browser, "reloads every 5 seconds");
    boot(&server, 10);
    shows(&mut browser, "127.0.0.10");
    drop(held);
    shows(&mut browser, "Live: changes appear by themselves");
}

#[test]
fn a_page_says_that_its_server_is_dead_and_shows_at_last_what_a_selection_held_back() {
    let server = sample_cluster();
    let mut browser = open(&server);
    let shows = |browser: &mut Browser, text: &str| {
        let text = format!("document.body.textContent.includes('{text}')");
        wait_until(&text, || browser.evaluate(&text) == true);
    };
    shows(&mut browser, "Live: changes appear by themselves");
    // The update is asked for, and waits for the selection.
    browser.evaluate(
        "document.getSelection().selectAllChildren(document.getElementById('machines-live'))",
    );
    boot(&server, 10);
    let elsewhere = "document.getElementById('boots-section').textContent.includes('2 booting')";
    wait_until("the boot", || browser.evaluate(elsewhere) == true);
    let there = "document.getElementById('machines-live').textContent.includes('127.0.0.10')";
    assert_eq!(browser.evaluate(there), false, "it was replaced under the selection");
    browser.evaluate("document.getSelection().removeAllRanges()");
    wait_until("the machine", || browser.evaluate(there) == true);
    // Dropping it kills it.
    drop(server);
    shows(&mut browser, "The server does not answer");
}

#[test]
fn a_new_pool_is_a_choice_of_the_filter_and_what_was_chosen_before_stays() {
    let directory = manifests("3.4.0");
    let server = Server::serve(directory.path(), &[]);
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/?pool=worker&state=booting", server.metrics().address()));
    let mut is = |value: &str, expression: &str| {
        wait_until(value, || browser.evaluate(expression) == value);
    };
    is("Live: changes appear by themselves.", "document.getElementById('connection').textContent");
    let chosen = "[...document.querySelectorAll('#filter [name]')].map(it => it.value).join()";
    let choose = |values: &str| {
        format!(
            "[...document.querySelectorAll('#filter [name]')]
                .forEach((it, place) => {{ it.value = {values}[place]; it.focus(); }});
            document.getElementById('pool-choices').focus(); {chosen}"
        )
    };
    is(",stuck,10.", &choose("['', 'stuck', '10.']"));
    let pool = fs::read_to_string(directory.path().join("pool.json")).expect("a pool");
    let other = directory.path().join("other.json");
    fs::write(&other, pool.replace("worker", "infra")).expect("a write");
    let choices = "[...document.getElementById('pool-choices').options].map(it => it.text).join()";
    is("all,infra,worker", choices);
    is(",stuck,10.", chosen);
    is("pool-choices", "document.activeElement.id");

    // Until the form is sent, the page's address decides.
    server.plain().from(loopback(11)).request("GET", "/config/infra", &[IGNITION]);
    boot(&server, 10);
    is("127.0.0.10", super::machines::ROWS);

    is("infra,stuck,10.", &choose("['infra', 'stuck', '10.']"));
    fs::remove_file(&other).expect("a file");
    is(
        "worker",
        "document.querySelector('#pools-table tbody').textContent.match(/worker|infra/g).join()",
    );
    is("infra,stuck,10.", chosen);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn two_hundred_streams_that_nobody_reads_are_no_more_than_there_are_places() {
    let server = sample_cluster();
    let before = server.resident_bytes();
    // Not more than the listener has connections for one source.
    let mut streams: Vec<_> =
        (0..200).map(|number| Events::of_events(&server, 2 + number / 50)).collect();
    let statuses: Vec<_> = streams.iter_mut().map(Events::status).collect();
    let refused = statuses.iter().filter(|status| *status == "503").count();
    let granted = statuses.iter().filter(|status| *status == "200").count();
    assert_eq!((granted, refused), (STREAMS, 200 - STREAMS));
    for number in 0..100 {
        boot(&server, 10 + number);
    }
    assert_eq!(server.metrics().get("/").status, 200);
    let grown = server.resident_bytes().saturating_sub(before);
    println!("{grown} bytes more with {STREAMS} streams");
    assert!(grown < 32 << 20, "{grown}");
    drop(streams);
    wait_until("a place", || Events::of_events(&server, 3).status() == "200");
}

#[test]
fn a_stream_has_an_event_for_each_change_and_ends_with_the_server() {
    let mut server = sample_cluster();
    let mut events = Events::of_events(&server, 2);
    let head = events.read_to("\r\n\r\n");
    assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("cache-control: no-"), "{head}");
    let mut next = || events.read_to("\n\n\r\n");
    assert!(next().contains("event: change\ndata: page\nretry: 1000\n"));
    boot(&server, 10);
    assert!(next().contains("event: change"));
    let stopping = Stopwatch::start();
    server.terminate();
    assert!(server.ended().success());
    stopping.within(Duration::from_secs(5), "the end");
    let mut rest = Vec::new();
    let _ = events.0.read_to_end(&mut rest);
}
