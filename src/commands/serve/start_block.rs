//! The block that `serve` prints when it serves: what it serves, where, and what to do next.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use model::escape::escaped;
use model::pointer_config::pool_url;
use pki::Host;
use table::{Color, TerminalStyle, table};

use crate::commands::server::Ports;

#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct StartBlock<'a> {
    /// The program as it was called.
    pub(in crate::commands) program: &'a str,
    pub(in crate::commands) manifests: &'a Path,
    /// Host in the pointer configs.
    pub(in crate::commands) host: &'a Host,
    pub(in crate::commands) ports: Ports,
    /// File of the trust bundle.
    pub(in crate::commands) bundle: &'a Path,
    /// Pools with the files of their pointer configs.
    pub(in crate::commands) pointers: &'a [(String, PathBuf)],
    /// Pools that cannot be served as they are written, with the reason.
    pub(in crate::commands) faults: &'a [(String, String)],
}

impl StartBlock<'_> {
    /// Escaped lines in the style of the output.
    pub(in crate::commands) fn lines(&self, style: TerminalStyle) -> Vec<String> {
        let mut lines = vec![style.paint(Color::Heading, &escaped(&self.heading())), String::new()];
        lines.extend(self.addresses());
        lines.push(String::new());
        for (pool, reason) in self.faults {
            let fault = format!("Correct pool {pool} before you start its machines: {reason}");
            lines.push(style.paint(Color::Bad, &escaped(&fault)));
        }
        if self.pointers.is_empty() {
            lines.push(style.paint(
                Color::Notable,
                "Next: add a MachineConfigPool to the manifests. It is served within a second.",
            ));
            return lines;
        }
        let row = |(pool, path): &(String, PathBuf)| vec![pool.clone(), path.display().to_string()];
        let rows: Vec<_> = self.pointers.iter().map(row).collect();
        lines.extend(table(&["POOL", "POINTER CONFIG"], &rows, style));
        lines.push(String::new());
        lines.push(style.paint(
            Color::Good,
            "Next: give each machine the pointer config of its pool as user data, and start it.",
        ));
        lines.extend(self.try_it());
        lines
    }

    fn heading(&self) -> String {
        let manifests = self.manifests.display();
        match self.pointers.len() {
            0 => format!("Serving {manifests}, which has no pool yet"),
            1 => format!("Serving 1 pool of {manifests}"),
            many => format!("Serving {many} pools of {manifests}"),
        }
    }

    fn addresses(&self) -> Vec<String> {
        let Self { host, ports, .. } = self;
        let Ports { secure, insecure, administrators } = ports;
        let config = |scheme, port| format!("{scheme}://{host}:{port}/config/POOL");
        let rows = [
            Some(("Machines", config("https", *secure))),
            insecure.map(|port| ("Without TLS", config("http", port))),
            administrators.map(|it| ("Status page", format!("http://{}/", reachable(it)))),
        ];
        let rows = rows.into_iter().flatten();
        rows.map(|(name, text)| escaped(&format!("  {name:<13}{text}")).into_owned()).collect()
    }

    /// Commands that show what a machine of the first pool gets.
    fn try_it(&self) -> Vec<String> {
        let Some((pool, path)) = self.pointers.first() else { return Vec::new() };
        let Self { host, ports: Ports { secure, .. }, bundle, .. } = self;
        let word = |path: &Path| shell_word(&path.display().to_string()).into_owned();
        let pointer = word(path);
        let lines = [
            "To see what such a machine gets, and if it boots:".to_owned(),
            format!("  {} inspect --pointer {pointer} --as 3.4", shell_word(self.program)),
            "The same with curl:".to_owned(),
            // The command reads the token from the pointer config when it runs, instead of an argument, which other
            // users of this machine can see. Without a token, no header is sent.
            format!(
                "  sed -n 's/.*\"\\(Bearer [^\"]*\\)\".*/Authorization: \\1/p' {pointer} | curl --cacert {} -H @- \
                 -H 'Accept: application/vnd.coreos.ignition+json;version=3.4.0' {}",
                word(bundle),
                shell_word(&pool_url(host, *secure, pool)),
            ),
        ];
        lines.iter().map(|line| escaped(line).into_owned()).collect()
    }
}

/// An address that a browser on this machine reaches: the loopback address instead of an unspecified one.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Quotes a word for a shell.
fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { secure: 22623, insecure: None, administrators: None };

    fn lines(ports: Ports, pools: &[&str], style: TerminalStyle) -> Vec<String> {
        let path = |pool: &&str| PathBuf::from(format!("certs/user-data/{pool}.ign"));
        let pointers: Vec<_> = pools.iter().map(|pool| ((*pool).to_owned(), path(pool))).collect();
        let block = StartBlock {
            program: "target/release/machine-config-server",
            manifests: Path::new("manifests"),
            host: &"mcs.example.com".parse().unwrap(),
            ports,
            bundle: Path::new("certs/ca.crt"),
            pointers: &pointers,
            faults: &[],
        };
        block.lines(style)
    }

    #[test]
    fn it_says_what_is_served_where_and_what_comes_next() {
        let administrators = Some("0.0.0.0:8797".parse().unwrap());
        let ports = Ports { insecure: Some(22624), administrators, ..PORTS };
        let lines = lines(ports, &["edge", "worker"], TerminalStyle::PLAIN);
        assert_eq!(
            lines[..11],
            [
                "Serving 2 pools of manifests",
                "",
                "  Machines     https://mcs.example.com:22623/config/POOL",
                "  Without TLS  http://mcs.example.com:22624/config/POOL",
                "  Status page  http://127.0.0.1:8797/",
                "",
                "POOL    POINTER CONFIG",
                "edge    certs/user-data/edge.ign",
                "worker  certs/user-data/worker.ign",
                "",
                "Next: give each machine the pointer config of its pool as user data, and start it.",
            ]
        );
        let inspect = "inspect --pointer certs/user-data/edge.ign --as 3.4";
        assert_eq!(lines[12], format!("  target/release/machine-config-server {inspect}"));
        assert!(lines[14].ends_with(" https://mcs.example.com:22623/config/edge"));
    }

    #[test]
    fn without_a_pool_the_next_step_is_to_add_one() {
        let lines = lines(PORTS, &[], TerminalStyle::PLAIN);
        assert_eq!(lines[0], "Serving manifests, which has no pool yet");
        assert!(lines[4].starts_with("Next: add a MachineConfigPool"), "{lines:#?}");
    }

    #[test]
    fn a_pool_that_cannot_be_served_is_named_before_the_others() {
        let faults = [("rack".to_owned(), "no MachineConfig has the labels".to_owned())];
        let block = StartBlock {
            program: "machine-config-server",
            manifests: Path::new("manifests"),
            host: &"mcs.example.com".parse().unwrap(),
            ports: PORTS,
            bundle: Path::new("certs/ca.crt"),
            pointers: &[("rack".to_owned(), PathBuf::from("certs/user-data/rack.ign"))],
            faults: &faults,
        };
        let lines = block.lines(TerminalStyle::PLAIN);
        let fault =
            "Correct pool rack before you start its machines: no MachineConfig has the labels";
        assert!(lines.iter().any(|line| line == fault), "{lines:#?}");
    }

    #[test]
    fn a_terminal_gets_colours_and_a_name_cannot_write_any() {
        let style = TerminalStyle { width: Some(80), is_coloured: true };
        let lines = lines(PORTS, &["a\u{1b}[31mb"], style);
        assert!(lines[0].starts_with("\u{1b}[1mServing 1 pool"), "{lines:#?}");
        assert!(!lines.concat().contains("\u{1b}[31m"), "{lines:#?}");
    }

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        for (text, word) in [
            ("certs/user-data/worker.ign", "certs/user-data/worker.ign"),
            ("https://h:22623/config/worker", "https://h:22623/config/worker"),
            ("https://[::1]:22623/config/a", "'https://[::1]:22623/config/a'"),
            ("/my certs/$(id)", "'/my certs/$(id)'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
