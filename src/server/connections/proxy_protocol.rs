//! Parses PROXY protocol headers, by which balancers report their client, in version 1 (a line of text) or 2 (binary),
//! before the client's first byte.
//!
//! It follows the [specification](https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt). No library is used: one
//! refuses a balancer's own connection (`LOCAL`) of a family without addresses, which section 2.2 requires to be
//! accepted, another waits forever for the rest of it, and none returns the number of missing bytes. That number keeps
//! the reader simple: it reads the header's bytes and none of the following.
//!
//! Values after the addresses (TLVs) are ignored, including a checksum: TCP has its own.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;

use model::access::Network;
use tokio::io::{AsyncRead, ReadBuf};

/// Beginning of version 2, which no text protocol accepts.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Beginning of version 1.
const WORD: &[u8; 6] = b"PROXY ";
/// Minimum length of a header in bytes.
const SHORTEST: usize = b"PROXY UNKNOWN\r\n".len();
/// Maximum length of a line in version 1, with its end, in bytes.
const LONGEST_LINE: usize = 107;
/// Maximum length of version 2 after its first 16 bytes: two addresses, and more values than balancers send.
const LONGEST_BLOCK: usize = 4 << 10;

/// Networks of balancers, whose connections begin with a header.
#[derive(Debug, Clone, Default)]
pub(crate) struct Balancers(Vec<Network>);

impl Balancers {
    /// Sets the networks of balancers.
    pub(crate) fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self(networks.into_iter().collect())
    }

    /// Returns `true` if a connection from this address is a balancer's.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

/// Progress of parsing a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The header is incomplete, and at least so many bytes are missing.
    Missing(usize),
    /// The header is complete.
    Whole {
        /// Length of the header in bytes.
        length: usize,
        /// Address of the client. `None` for a balancer's own connection, or a client without a TCP address.
        client: Option<SocketAddr>,
    },
}

/// Reasons why a header is refused.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("the connection does not begin with a PROXY header")]
    Absent,
    #[error("the PROXY header is malformed")]
    Malformed,
    #[error("the PROXY header is too long")]
    TooLong,
    /// The connection ended, or the header came too late.
    #[error("no PROXY header came: {0}")]
    Connection(#[from] io::Error),
}

impl HeaderError {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Connection(error) if error.kind() == io::ErrorKind::TimedOut => "timeout",
            Self::Connection(_) => "connection",
        }
    }
}

/// Reads a header and no byte after it. Returns the client behind the balancer, `None` if none is named.
pub(super) async fn read<S>(stream: &mut S) -> Result<Option<SocketAddr>, HeaderError>
where
    S: AsyncRead + Unpin,
{
    let mut header = Vec::with_capacity(LONGEST_LINE);
    loop {
        let missing = match parse(&header)? {
            Progress::Whole { client, .. } => return Ok(client),
            Progress::Missing(missing) => missing,
        };
        let mut room = [0; 256];
        let most = missing.min(room.len());
        let mut came = ReadBuf::new(&mut room[..most]);
        poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut came)).await?;
        if came.filled().is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        header.extend_from_slice(came.filled());
    }
}

/// Parses the beginning of a header.
pub fn parse(bytes: &[u8]) -> Result<Progress, HeaderError> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(is, should)| is == should);
    match bytes {
        [] => Ok(Progress::Missing(SHORTEST)),
        _ if begins(SIGNATURE) => parse_version_2(bytes),
        _ if begins(WORD) => parse_version_1(bytes),
        _ => Err(HeaderError::Absent),
    }
}

/// Parses version 1: `PROXY TCP4 SOURCE DESTINATION PORT PORT`, or TCP6, or UNKNOWN and anything.
fn parse_version_1(bytes: &[u8]) -> Result<Progress, HeaderError> {
    let seen = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        let least = if seen.ends_with(b"\r") { 1 } else { 2 };
        let missing = least.max(SHORTEST.saturating_sub(seen.len()));
        let fits = seen.len() + missing <= LONGEST_LINE;
        return if fits { Ok(Progress::Missing(missing)) } else { Err(HeaderError::TooLong) };
    };
    let line = seen[..end].strip_suffix(b"\r").ok_or(HeaderError::Malformed)?;
    let line = line.strip_prefix(WORD).ok_or(HeaderError::Malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| HeaderError::Malformed)?;
    let words: Vec<&str> = line.split(' ').collect();
    let client = match words[..] {
        ["UNKNOWN", ..] => None,
        [family @ ("TCP4" | "TCP6"), source, destination, source_port, destination_port] => {
            address(family, destination, destination_port)?;
            Some(canonical(address(family, source, source_port)?))
        }
        _ => return Err(HeaderError::Malformed),
    };
    Ok(Progress::Whole { length: end + 1, client })
}

fn address(family: &str, address: &str, port: &str) -> Result<SocketAddr, HeaderError> {
    let address = address.parse::<IpAddr>().map_err(|_| HeaderError::Malformed)?;
    // Numbers have neither sign nor leading zeros.
    let port = port.parse::<u16>().ok().filter(|number| number.to_string() == port);
    let port = port.ok_or(HeaderError::Malformed)?;
    if address.is_ipv4() == (family == "TCP4") {
        Ok(SocketAddr::new(address, port))
    } else {
        Err(HeaderError::Malformed)
    }
}

/// Parses version 2: the signature, version and command, family, the length of the rest, and the rest.
fn parse_version_2(bytes: &[u8]) -> Result<Progress, HeaderError> {
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else {
        return Ok(Progress::Missing(16 - bytes.len()));
    };
    let [.., command, family, high, low] = *head;
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(HeaderError::Malformed),
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > LONGEST_BLOCK {
        return Err(HeaderError::TooLong);
    }
    let Some(block) = rest.get(..length) else {
        return Ok(Progress::Missing(length - rest.len()));
    };
    let client = match family {
        _ if is_local => None,
        // Unspecified, datagrams and Unix sockets, by which no machine connects.
        0x00 | 0x12 | 0x22 | 0x31 | 0x32 => None,
        0x11 => match block {
            [a, b, c, d, _, _, _, _, high, low, _, _, ..] => {
                Some(([*a, *b, *c, *d], u16::from_be_bytes([*high, *low])).into())
            }
            _ => return Err(HeaderError::Malformed),
        },
        0x21 => {
            let (source, rest) = block.split_first_chunk::<16>().ok_or(HeaderError::Malformed)?;
            // The destination, and both ports.
            let [.., high, low, _, _] = rest.first_chunk::<20>().ok_or(HeaderError::Malformed)?;
            let port = u16::from_be_bytes([*high, *low]);
            Some(canonical((Ipv6Addr::from(*source), port).into()))
        }
        _ => return Err(HeaderError::Malformed),
    };
    Ok(Progress::Whole { length: head.len() + length, client })
}

/// An address with its port, IPv4-mapped addresses as IPv4: a machine has one address, independent of the socket.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(bytes: &[u8]) -> Result<Option<String>, &'static str> {
        match parse(bytes) {
            Ok(Progress::Whole { length, client }) => {
                assert_eq!(length, bytes.len(), "{}", bytes.escape_ascii());
                Ok(client.map(|client| client.to_string()))
            }
            Ok(Progress::Missing(_)) => Err("missing"),
            Err(error) => Err(error.label()),
        }
    }

    fn version_2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let length = u16::try_from(block.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, block].concat()
    }

    const IPV4: [u8; 12] = [192, 0, 2, 9, 198, 51, 100, 1, 0x1f, 0x90, 0x58, 0x5f];

    fn ipv6() -> Vec<u8> {
        let address: Ipv6Addr = "2001:db8::9".parse().unwrap();
        [&address.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &[0x1f, 0x90, 0x58, 0x5f]].concat()
    }

    #[test]
    fn a_line_of_version_1_names_the_client() {
        for (line, expected) in [
            ("TCP4 192.0.2.9 198.51.100.1 8080 22623", Ok(Some("192.0.2.9:8080"))),
            ("TCP4 255.255.255.255 255.255.255.255 65535 65535", Ok(Some("255.255.255.255:65535"))),
            ("TCP6 2001:db8::9 ::1 0 22623", Ok(Some("[2001:db8::9]:0"))),
            ("TCP6 ::ffff:192.0.2.9 ::1 1 2", Ok(Some("192.0.2.9:1"))),
            ("UNKNOWN", Ok(None)),
            ("UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535", Ok(None)),
            ("TCP4 192.0.2.9", Err("malformed")),
            ("TCP4 192.0.2.9 198.51.100.1 8080", Err("malformed")),
            ("TCP4 192.0.2.9 198.51.100.1 8080 22623 ", Err("malformed")),
            ("TCP4  192.0.2.9 198.51.100.1 8080 22623", Err("malformed")),
            ("TCP4 192.0.2.09 198.51.100.1 8080 22623", Err("malformed")),
            ("TCP4 192.0.2.9 198.51.100.256 8080 22623", Err("malformed")),
            ("TCP4 192.0.2.9 198.51.100.1 08080 22623", Err("malformed")),
            ("TCP4 192.0.2.9 198.51.100.1 +8080 22623", Err("malformed")),
            ("TCP4 192.0.2.9 198.51.100.1 8080 65536", Err("malformed")),
            ("TCP4 192.0.2.9 198.51.100.1 8080 -1", Err("malformed")),
            ("TCP4 2001:db8::9 ::1 8080 22623", Err("malformed")),
            ("TCP6 192.0.2.9 198.51.100.1 8080 22623", Err("malformed")),
            ("UDP4 192.0.2.9 198.51.100.1 8080 22623", Err("malformed")),
            ("UNKNOWNS and more", Err("malformed")),
            ("tcp4 192.0.2.9 198.51.100.1 8080 22623", Err("malformed")),
        ] {
            let given = client(format!("PROXY {line}\r\n").as_bytes());
            let given = given.as_ref().map(Option::as_deref).map_err(|error| *error);
            assert_eq!(given, expected, "{line:?}");
        }
        assert_eq!(client(b"PROXY TCP4 192.0.2.9 198.51.100.1 1 2\n"), Err("malformed"));
        assert_eq!(client(b"PROXY UNKNOWN \xff\xfe\r\n"), Err("malformed"));
    }

    #[test]
    fn a_line_is_at_most_107_bytes_long() {
        let line = |length: usize| {
            let filling = "x".repeat(length - "PROXY UNKNOWN \r\n".len());
            format!("PROXY UNKNOWN {filling}\r\n").into_bytes()
        };
        assert_eq!(client(&line(107)), Ok(None));
        assert_eq!(client(&line(108)), Err("too_long"));
        assert_eq!(client(&line(108)[..106]), Err("too_long"));
        assert_eq!(client(&line(107)[..106]), Err("missing"));
    }

    #[test]
    fn version_2_names_the_client() {
        let (local, proxy) = (0x20, 0x21);
        let tlv = [4, 0, 3, 0, 0, 0];
        let (with_tlv, ipv6) = ([&IPV4[..], &tlv].concat(), ipv6());
        let mapped: Ipv6Addr = "::ffff:192.0.2.9".parse().unwrap();
        let mapped = [&mapped.octets()[..], &ipv6[16..]].concat();
        let (most, more) = ([0; 4096], [0; 4097]);
        let cases: [(u8, u8, &[u8], _); 26] = [
            (proxy, 0x11, &IPV4, Ok(Some("192.0.2.9:8080"))),
            (proxy, 0x11, &with_tlv, Ok(Some("192.0.2.9:8080"))),
            (proxy, 0x21, &ipv6, Ok(Some("[2001:db8::9]:8080"))),
            (proxy, 0x21, &mapped, Ok(Some("192.0.2.9:8080"))),
            (proxy, 0x00, &[], Ok(None)),
            (proxy, 0x00, &tlv, Ok(None)),
            (proxy, 0x31, &[0; 216], Ok(None)),
            (proxy, 0x12, &IPV4, Ok(None)),
            (proxy, 0x22, &ipv6, Ok(None)),
            // A balancer's own: nothing else is looked at.
            (local, 0x00, &[], Ok(None)),
            (local, 0x11, &IPV4, Ok(None)),
            (local, 0x11, &[], Ok(None)),
            (local, 0x21, &IPV4, Ok(None)),
            (local, 0xff, &[], Ok(None)),
            (proxy, 0x11, &[], Err("malformed")),
            (proxy, 0x11, &IPV4[..11], Err("malformed")),
            (proxy, 0x21, &ipv6[..35], Err("malformed")),
            (proxy, 0x21, &IPV4, Err("malformed")),
            (proxy, 0x10, &IPV4, Err("malformed")),
            (proxy, 0x13, &IPV4, Err("malformed")),
            (proxy, 0x41, &IPV4, Err("malformed")),
            // Another version, and another command.
            (0x11, 0x11, &IPV4, Err("malformed")),
            (0x31, 0x11, &IPV4, Err("malformed")),
            (0x22, 0x11, &IPV4, Err("malformed")),
            (proxy, 0x00, &most, Ok(None)),
            (proxy, 0x00, &more, Err("too_long")),
        ];
        for (command, family, block, expected) in cases {
            let given = client(&version_2(command, family, block));
            let given = given.as_ref().map(Option::as_deref).map_err(|error| *error);
            assert_eq!(given, expected, "{command:#x} {family:#x} {block:?}");
        }
    }

    #[test]
    fn what_is_no_header_is_reported_at_its_first_byte_that_says_so() {
        for bytes in
            [&b"G"[..], b"PROXY\t", b"PR0", b"\x16\x03\x01", b"\r\n\r\n\0\r\nQUIT\r", b"proxy "]
        {
            assert_eq!(client(bytes), Err("absent"), "{}", bytes.escape_ascii());
        }
    }

    #[tokio::test]
    async fn a_header_is_read_to_its_last_byte_however_it_comes() {
        let lines = ["PROXY UNKNOWN\r\n", "PROXY TCP4 192.0.2.9 198.51.100.1 8080 22623\r\n"];
        let headers = [
            lines[0].as_bytes().to_vec(),
            lines[1].as_bytes().to_vec(),
            version_2(0x21, 0x11, &IPV4),
            version_2(0x21, 0x21, &[&ipv6()[..], &[4; 4000]].concat()),
            version_2(0x20, 0x00, &[]),
        ];
        for header in headers {
            let Ok(Progress::Whole { client, .. }) = parse(&header) else { panic!("a header") };
            let whole = [&header[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
            for step in [1, 2, 3, 16, whole.len()] {
                let mut stream = Steps { left: &whole, step };
                assert_eq!(read(&mut stream).await.unwrap(), client);
                assert_eq!(stream.left, b"GET / HTTP/1.1\r\n\r\n", "{}", header.escape_ascii());
            }
            for end in 0..header.len() {
                let mut cut = Steps { left: &header[..end], step: 7 };
                assert_eq!(read(&mut cut).await.unwrap_err().label(), "connection");
            }
        }
    }

    /// A client that sends so many bytes at a time, and then ends.
    struct Steps<'a> {
        left: &'a [u8],
        step: usize,
    }

    impl AsyncRead for Steps<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            let length = self.step.min(buffer.remaining()).min(self.left.len());
            let (now, later) = self.left.split_at(length);
            buffer.put_slice(now);
            self.left = later;
            std::task::Poll::Ready(Ok(()))
        }
    }
}
