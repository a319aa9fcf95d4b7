//! The CA's side of HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ServerConnection, StreamOwned};

use super::quirk::Quirk;
use super::{Seen, Shared, lock};
use crate::support::DEADLINE;

impl Shared {
    pub(super) fn serve(&self, socket: TcpStream) -> std::io::Result<()> {
        socket.set_read_timeout(Some(DEADLINE))?;
        match &self.tls {
            None => self.answer(socket),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config));
                let connection = connection.map_err(std::io::Error::other)?;
                self.answer(StreamOwned::new(connection, socket))
            }
        }
    }

    fn answer(&self, mut stream: impl Read + Write) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        assert!(head.starts_with("post /pkix/servers http/1."), "{head}");
        assert!(head.contains("\r\ncontent-type: application/pkixcmp\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok());
        let mut body = vec![0; length.expect("a length")];
        stream.read_exact(&mut body)?;
        let (line, kind, mut answer) = match self.quirk() {
            Quirk::NotFound => ("404 Not Found", "text/plain", b"nothing here".to_vec()),
            Quirk::Unavailable => {
                lock(&self.seen).push(Seen::TurnedAway);
                ("503 Service Unavailable", "text/plain", Vec::new())
            }
            Quirk::Redirect => {
                ("302 Found\r\nLocation: http://127.0.0.1:1/", "text/html", Vec::new())
            }
            Quirk::WrongType => ("200 OK", "text/html", self.message(&body)),
            Quirk::Garbage => ("200 OK", "application/pkixcmp", b"\x30\x80no message".to_vec()),
            Quirk::Huge => ("200 OK", "application/pkixcmp", vec![0x30; 1 << 20]),
            Quirk::Silent => {
                // Wait until the client has gone.
                return stream.read(&mut [0]).map(|_| ());
            }
            _ => ("200 OK", "application/pkixcmp", self.message(&body)),
        };
        let length = answer.len();
        match self.quirk() {
            Quirk::CutShort => answer.truncate(length / 2),
            Quirk::Trailing => answer.push(0),
            _ => {}
        }
        let length = if self.quirk() == Quirk::Trailing { length + 1 } else { length };
        write!(
            stream,
            "HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        stream.write_all(&answer)?;
        stream.flush()
    }
}
