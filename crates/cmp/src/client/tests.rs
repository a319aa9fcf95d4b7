use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::Mutex;

use der::Encode as _;
use rcgen::KeyPair;

use super::*;
use crate::message::{CertRep, CertResponse, ErrorContent, Kind, PollRep, StatusInfo};
use crate::test_ca::{Ca, NOW, password, settings};

/// Reactions of a server to a message.
#[derive(Clone, Copy)]
enum Turn {
    /// Answers that the request waits.
    Waiting,
    /// Asks to wait so many seconds.
    Later(i64),
    Certificate,
    Confirmed,
    Refused,
    Absent,
    NoMessage,
}

use Turn::{Absent, Certificate, Confirmed, Later, NoMessage, Refused, Waiting};

/// A server with a sequence of reactions.
struct Server {
    ca: Ca,
    key: KeyPair,
    turns: Mutex<VecDeque<Turn>>,
    waited: Mutex<Vec<Duration>>,
}

impl Server {
    fn answer(&self, turn: Turn) -> (Kind, Vec<u8>) {
        let status = |status| StatusInfo { status, text: None, failures: None };
        let contents = match turn {
            Certificate => return (Kind::Ip, self.ca.certificates(&self.ca.issue(&self.key))),
            Confirmed => return (Kind::PkiConf, vec![5, 0]),
            Later(check_after) => {
                let reason = Some(vec!["slow".to_owned()]);
                let reports = vec![PollRep { request_id: 0, check_after, reason }];
                return (Kind::PollRep, reports.to_der().unwrap());
            }
            Refused => ErrorContent { status: status(2), code: None, details: None }.to_der(),
            _ => {
                let status = status(3);
                let response = CertResponse { request_id: 0, status, certified: None, info: None };
                let answer = CertRep { cas: None, responses: vec![response] };
                return (Kind::Ip, answer.to_der().unwrap());
            }
        };
        (Kind::Error, contents.unwrap())
    }
}

impl Transport for Server {
    async fn exchange(&self, message: Vec<u8>) -> Result<Vec<u8>, TransportError> {
        let turn = self.turns.lock().unwrap().pop_front().expect("a turn");
        match turn {
            Absent => Err(TransportError::Absent("nobody there".into())),
            NoMessage => Err(TransportError::NoMessage("a page".into())),
            turn => {
                let (kind, contents) = self.answer(turn);
                Ok(self.ca.answer(&message, kind, &contents, &password()))
            }
        }
    }

    async fn wait(&self, time: Duration) {
        self.waited.lock().unwrap().push(time);
    }

    fn retries(&self) -> impl Iterator<Item = Duration> + Send {
        [2, 4].map(Duration::from_secs).into_iter()
    }
}

/// Runs an enrolment, and returns its result and the waits with their reasons.
fn enrol(
    turns: &[Turn],
    random: fn() -> Option<[u8; 16]>,
) -> (Result<EnrolledCertificate, EnrolError>, Vec<String>) {
    let server = Server {
        ca: Ca::new(),
        key: KeyPair::generate().unwrap(),
        turns: Mutex::new(turns.iter().copied().collect()),
        waited: Mutex::default(),
    };
    let client = Client { transport: &server, random, clock: || NOW };
    let (subject, mut reported) = ("CN=a".parse().unwrap(), Vec::new());
    let request = Request::First { subject: &subject, hosts: &[], key: &server.key };
    let waits = |time: Duration, pause: Pause<'_>| {
        let why = match pause {
            Pause::Requested(reason) => reason.to_owned(),
            Pause::Unreachable(error) => error.to_string(),
        };
        reported.push((time, why));
    };
    let enrolled = {
        let future = pin!(client.enrol(settings(password(), &server.ca), request, waits));
        let Poll::Ready(enrolled) = future.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("nothing here waits")
        };
        enrolled
    };
    let times: Vec<_> = reported.iter().map(|(time, _)| *time).collect();
    assert!(server.waited.lock().unwrap().starts_with(&times), "each wait is reported");
    assert!(server.turns.lock().unwrap().is_empty(), "each turn can be used");
    (enrolled, reported.iter().map(|(time, why)| format!("{} s: {why}", time.as_secs())).collect())
}

#[expect(clippy::unnecessary_wraps, reason = "it is what randomness comes as")]
fn some() -> Option<[u8; 16]> {
    Some([1; 16])
}

#[test]
fn a_server_that_has_the_request_is_asked_until_the_certificate_comes() {
    let turns =
        [Waiting, Later(7), Absent, Absent, Later(9), Absent, Later(1), Certificate, Confirmed];
    let (enrolled, reported) = enrol(&turns, some);
    enrolled.unwrap();
    let (away, asked) = ("nobody there", "slow");
    let expected = [(7, asked), (2, away), (4, away), (9, asked), (2, away), (1, asked)];
    assert_eq!(reported, expected.map(|(time, why)| format!("{time} s: {why}")));
}

#[test]
fn a_server_that_does_not_have_the_request_is_not_asked_again() {
    for (turns, expected) in [
        (&[Absent][..], "nobody there"),
        (&[NoMessage], "a page"),
        (&[Waiting, NoMessage], "a page"),
        (&[Certificate, Absent], "nobody there"),
    ] {
        let (enrolled, reported) = enrol(turns, some);
        let error = enrolled.unwrap_err();
        assert!(matches!(error, EnrolError::Transport(_)) && !error.is_final(), "{error}");
        assert_eq!((error.to_string().as_str(), reported.len()), (expected, 0));
    }
}

#[test]
fn a_server_that_stays_absent_is_given_up_once_the_tries_end() {
    let (enrolled, reported) = enrol(&[Waiting, Absent, Absent, Absent], some);
    assert!(matches!(enrolled, Err(EnrolError::Transport(TransportError::Absent(_)))));
    assert_eq!(reported, ["2 s: nobody there", "4 s: nobody there"]);
}

#[test]
fn a_refusal_is_one_of_the_request_unless_the_server_was_absent_meanwhile() {
    let refused = |turns: &[Turn]| enrol(turns, some).0.unwrap_err();
    for turns in [&[Refused][..], &[Waiting, Refused], &[Waiting, Absent, Later(1), Refused]] {
        let error = refused(turns);
        assert!(matches!(error, EnrolError::Cmp(CmpError::Refused(_))) && error.is_final());
    }
    let error = refused(&[Waiting, Absent, Refused]);
    assert!(matches!(error, EnrolError::Lost(_)) && !error.is_final(), "{error}");
}

#[test]
fn nothing_is_sent_without_randomness() {
    let (enrolled, _) = enrol(&[], || None);
    assert!(matches!(enrolled, Err(EnrolError::NoRandomness)));
}
