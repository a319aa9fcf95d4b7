//! The network of a test's machines: a bridge with this host and the machines on it, and a server of addresses. What listens
//! in it is seen by nothing else on this host.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::support::logged::Logged;
use crate::support::virtual_machine::program;

/// This host in the machines' network.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The port of the servers that all pointer configs name.
const PORT: u16 = 22623;

const WIRES: &str = r"
ip link set lo up
ip link add machines type bridge
ip address add $0/24 dev machines
ip link set machines up
";

/// A quarter of a minute for half a megabyte.
const SLOW: &str = "tc qdisc add dev $0 root tbf rate 300kbit burst 16kb latency 20s";

/// Runs a closure in a network of machines.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root, as tests/run is");
        shell(WIRES, &[&HOST.to_string()]);
        work()
    };
    thread::scope(|scope| {
        let thread = scope.spawn(work);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The address of a machine's network card.
fn hardware(last: u8) -> String {
    format!("02:00:0a:4d:00:{last:02x}")
}

fn interface(last: u8) -> String {
    format!("machine{last}")
}

fn shell(script: &str, arguments: &[&str]) {
    let status = Command::new("bash").args(["-ec", script]).args(arguments).status();
    assert!(status.expect("bash").success(), "{script}");
}

/// What gives addresses to machines. It ends with this value.
pub(super) struct Network {
    _addresses: Logged,
    directory: TempDir,
}

impl Network {
    /// Begins to give addresses, in a thread that is [`apart`].
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let mut command = program("dnsmasq");
        command
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--log-facility=-", "--port=0"])
            .args(["--user=root", "--group=root", "--interface=machines", "--bind-interfaces"])
            .args(["--pid-file=", "--dhcp-authoritative", "--no-ping"])
            .arg("--dhcp-range=10.77.0.0,static,1h")
            .args((10..20).map(|last| format!("--dhcp-host={},10.77.0.{last}", hardware(last))))
            .arg(format!("--dhcp-option=option:router,{HOST}"))
            .arg(format!("--dhcp-leasefile={}", directory.path().join("leases").display()));
        Self { _addresses: Logged::start("dnsmasq", &mut command), directory }
    }

    /// Leads the machines, and commands on this host, to these servers in turn, by what they see as one address. Servers see the machines' own addresses.
    pub(super) fn balance(&self, servers: &[SocketAddr]) {
        let ports = servers.iter().enumerate();
        let ports: Vec<_> = ports.map(|(index, at)| format!("{index} : {}", at.port())).collect();
        let leads = format!(
            "ip daddr {HOST} tcp dport {PORT} redirect to :numgen inc mod {} map {{ {} }}",
            ports.len(),
            ports.join(", ")
        );
        let rules = format!(
            "table ip machines\n\
             delete table ip machines\n\
             table ip machines {{\n\
             chain servers {{\n\
             type nat hook prerouting priority dstnat\n\
             {leads}\n\
             }}\n\
             chain commands {{\n\
             type nat hook output priority -100\n\
             {leads}\n\
             }}\n\
             }}\n"
        );
        let file = self.file("rules.nft");
        fs::write(&file, rules).expect("a writable folder");
        shell("PATH=$PATH:/usr/sbin nft -f $0", &[file.to_str().expect("text")]);
    }

    /// QEMU's values of `-netdev` and `-device` for a machine that gets the address with this last number.
    pub(super) fn place(last: u8) -> (String, String) {
        let interface = interface(last);
        let script = "ip tuntap add $0 mode tap && ip link set $0 master machines up";
        shell(script, &[&interface]);
        (
            format!("tap,id=host,ifname={interface},script=no,downscript=no"),
            format!("virtio-net-pci,netdev=host,romfile=,mac={}", hardware(last)),
        )
    }

    /// Lets what a machine is sent take its time.
    pub(super) fn slow_down(last: u8) {
        shell(&format!("PATH=$PATH:/sbin {SLOW}"), &[&interface(last)]);
    }

    /// Ends that.
    pub(super) fn speed_up(last: u8) {
        shell("PATH=$PATH:/sbin tc qdisc delete dev $0 root", &[&interface(last)]);
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }
}
