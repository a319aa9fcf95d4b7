//! Examples at the end of `--help` and of each manual page. A line that begins with `#` describes the next one.
//! `tests/it/command_line.rs` parses each of them.

/// The end of a command's help.
pub(super) fn titled(examples: &str) -> String {
    format!("Examples:{examples}")
}

pub(super) const ALL: &str = "
  # Try it: the sample cluster, with certificates that the server makes
  machine-config-server serve ignition-fixtures
  # Can a machine boot from this file?
  machine-config-server certs check --pointer worker.ign --connect mcs.example.com:22623
  # The flags of a command
  machine-config-server serve --help";

pub(super) const BOOTSTRAP: &str = "
  # As the reference server is started on a bootstrap machine
  machine-config-server bootstrap --server-basedir /etc/mcs/bootstrap \\
    --bootstrap-kubeconfig /etc/kubernetes/kubeconfig \\
    --cert /etc/ssl/mcs/tls.crt --key /etc/ssl/mcs/tls.key
  # With the CA of a registry, from a file below the base directory
  machine-config-server bootstrap --bootstrap-certs registry.example.com:5000=registry-ca.crt";

pub(super) const START: &str = "
  # In a pod, as its service account
  machine-config-server start --apiserver-url https://api-int.example.com:6443
  # Elsewhere, and also while the API server is unavailable
  machine-config-server start --apiserver-url https://api-int.example.com:6443 \\
    --kubeconfig FILE --cache-dir /var/cache/machine-config-server
  # Behind one load balancer, which sends the client's address; TLS 1.3 only
  machine-config-server start --apiserver-url https://api-int.example.com:6443 \\
    --proxy-from 192.0.2.8 --tls-min-version VersionTLS13";

pub(super) const SERVE: &str = "
  # Manifests of a cluster, for machines that reach this server by this name
  oc get mcp,mc,controllerconfig -o yaml > manifests/dump.yaml
  machine-config-server serve manifests --host mcs.example.com
  # Certificates in another directory, metrics on all addresses, no port without TLS
  machine-config-server serve manifests --state-dir /var/lib/machine-config-server \\
    --metrics-address 0.0.0.0:8797 --insecure-port 0";

pub(super) const CONTROLLER: &str = "
  # In a pod, as its service account, in a cluster without an Infrastructure object
  machine-config-server controller --host mcs.example.com
  # Elsewhere, with metrics on all addresses
  machine-config-server controller --kubeconfig FILE --metrics-address 0.0.0.0:8798";

pub(super) const ISSUER: &str = "
  # In a pod, as its service account
  machine-config-server issuer
  # Elsewhere, with the CAs of cluster issuers where cert-manager has them
  machine-config-server issuer --kubeconfig FILE --cluster-resource-namespace cert-manager";

pub(super) const HEALTH: &str = "
  # On the machine of a server, without and with the files that it serves
  machine-config-server health
  machine-config-server health manifests --state-dir /var/lib/machine-config-server
  # A server elsewhere, for a script
  machine-config-server health --from mcs.example.com:8797 --json
  # A cluster, and one of its servers
  kubectl -n openshift-machine-config-operator port-forward POD 9623:9623 &
  machine-config-server health --kubeconfig FILE --from 127.0.0.1:9623";

pub(super) const INSPECT: &str = "
  # The config as a machine with this user data fetches it
  machine-config-server inspect --pointer certs/user-data/worker.ign --as 3.4
  # From a server, and from a directory without a server
  machine-config-server inspect https://mcs.example.com:22623 worker
  machine-config-server inspect ignition-fixtures worker
  # The difference to another pool; one file as it will be on disk
  machine-config-server inspect ignition-fixtures worker --diff master
  machine-config-server inspect ignition-fixtures worker --file /etc/hostname
  # The effect of changed manifests on the machines of each pool
  machine-config-server inspect manifests --diff manifests.new";

pub(super) const MACHINES: &str = "
  # On the machine of a server
  machine-config-server machines
  # One machine, from another server
  machine-config-server machines 192.0.2.17 --from mcs.example.com:8797
  # For a script
  machine-config-server machines --json";

pub(super) const MACHINES_ADD: &str = "
  # For a directory that a server serves
  machine-config-server machines add rack-7 --pool worker --manifests manifests
  # With its own files, and a token that opens nothing from elsewhere
  machine-config-server machines add rack-8 --pool worker --manifests manifests \\
    --overlay rack-8.ign --address 192.0.2.8 --state-dir /var/lib/machine-config-server
  # In a cluster
  machine-config-server machines add rack-9 --pool worker --kubeconfig FILE";

pub(super) const MACHINES_APPROVE: &str = "
  # A machine with a name
  machine-config-server machines approve rack-7
  # The machine that waits at an address
  machine-config-server machines approve 192.0.2.17
  # One that has not asked yet, for all servers of a cluster
  machine-config-server machines approve 192.0.2.17 --pool worker --kubeconfig FILE";

pub(super) const MACHINES_REARM: &str = "
  machine-config-server machines rearm rack-7
  machine-config-server machines rearm rack-7 --state-dir /var/lib/machine-config-server
  # In a cluster
  machine-config-server machines rearm rack-9 --kubeconfig FILE";

pub(super) const MACHINES_REMOVE: &str = "
  machine-config-server machines remove rack-7 --manifests manifests
  # In a cluster
  machine-config-server machines remove rack-9 --kubeconfig FILE";

pub(super) const RENDER: &str = "
  # The config that a server of this directory answers with
  machine-config-server render worker ignition-fixtures --spec 3.4 > worker.ign
  # The pointer config with which a machine fetches it
  machine-config-server render worker --pointer --server mcs.example.com:22623
  # From a cluster
  machine-config-server render worker --kubeconfig FILE \\
    --apiserver-url https://api-int.example.com:6443 --bootstrap-token-dir token";

pub(super) const VALIDATE: &str = "
  # In the CI of a repository with the manifests
  machine-config-server validate manifests --strict
  # For a script
  machine-config-server validate manifests --json";

pub(super) const NODE_CA: &str = "
  # For CRI-O, podman and docker, in a pod
  machine-config-server node-ca
  # For containerd, with metrics on all addresses
  machine-config-server node-ca --layout containerd --metrics-address 0.0.0.0:8799
  # A separate directory, to see what it does
  machine-config-server node-ca --kubeconfig FILE --dir certs.d";

pub(super) const TOKENS: &str = "
  # The tokens of a state directory, and of a cluster
  machine-config-server tokens list
  machine-config-server tokens list --kubeconfig FILE
  # For machines whose pointer configs are kept elsewhere
  machine-config-server tokens add rack-7 --pool worker --until 30d";

pub(super) const TOKENS_ADD: &str = "
  machine-config-server tokens add rack-7 --pool worker --until 2027-01-31
  # For two pools, in a cluster
  machine-config-server tokens add pxe --pool worker,infra --until never --kubeconfig FILE";

pub(super) const TOKENS_LIST: &str = "
  machine-config-server tokens list --state-dir /var/lib/machine-config-server
  machine-config-server tokens list --kubeconfig FILE";

pub(super) const TOKENS_REVOKE: &str = "
  # By name, and by id
  machine-config-server tokens revoke rack-7
  machine-config-server tokens revoke 24e1b78bdcd4 --kubeconfig FILE";

pub(super) const TOKENS_ROTATE: &str = "
  # The tokens of all pointer configs
  machine-config-server tokens rotate
  # Of one pool, in a cluster
  machine-config-server tokens rotate --pool worker --kubeconfig FILE";

pub(super) const CERTS: &str = "
  # The certificates of `serve`, and of the controller in a cluster
  machine-config-server certs show
  machine-config-server certs show --kubeconfig FILE
  # Is everything OK? Exits with 1 if not
  machine-config-server certs check --state-dir /var/lib/machine-config-server";

pub(super) const CERTS_SHOW: &str = "
  machine-config-server certs show --state-dir /var/lib/machine-config-server
  machine-config-server certs show --kubeconfig FILE";

pub(super) const CERTS_CHECK: &str = "
  # Everything that needs an administrator
  machine-config-server certs check
  # User data, checked against the state directory
  machine-config-server certs check --pointer certs/user-data/worker.ign
  # The same, checked against a running server
  machine-config-server certs check --pointer worker.ign --connect mcs.example.com:22623
  # User data of a cluster, checked against its certificates
  machine-config-server certs check --pointer worker.ign --kubeconfig FILE";

pub(super) const CERTS_ROTATE: &str = "
  # A new serving certificate
  machine-config-server certs rotate
  # A new CA first, in a cluster
  machine-config-server certs rotate --ca --kubeconfig FILE
  # Another kind of key
  machine-config-server certs rotate --key-algorithm rsa4096";

pub(super) const CERTS_DISTRUST: &str = "
  # Which machines could not boot any more? Nothing is changed
  machine-config-server certs distrust machine-config-server-ca@1795287382-823b
  # Do it
  machine-config-server certs distrust machine-config-server-ca@1795287382-823b --yes
  # A CA by its certificate, in a cluster
  machine-config-server certs distrust leaked.crt --kubeconfig FILE";

pub(super) const CMP: &str = "
  # The flags of enrolling
  machine-config-server cmp enroll --help";

pub(super) const CMP_ENROLL: &str = "
  # A first certificate, with a password from the CA
  machine-config-server cmp enroll --url https://ca.example.com/pkix --ca-name servers \\
    --cacert https-ca.crt --secret-file password --sender-kid 4711 \\
    --subject CN=mcs.example.com,O=Example --dns mcs.example.com \\
    --key-out tls.key --out tls.crt --cas-out ca.crt
  # A certificate for an existing request
  machine-config-server cmp enroll --url https://ca.example.com/pkix --cacert https-ca.crt \\
    --secret-file password --sender-kid 4711 --csr server.csr --out tls.crt
  # A renewal, signed with the present certificate
  machine-config-server cmp enroll --url https://ca.example.com/pkix --cacert https-ca.crt \\
    --renew tls.crt --key tls.key --trusted ca.crt --key-out new.key --out new.crt";

pub(super) const COMPLETIONS: &str = "
  # For this shell
  source <(machine-config-server completions bash)
  # For all users
  machine-config-server completions fish > /etc/fish/completions/machine-config-server.fish";

pub(super) const MAN: &str = "
  # One page
  machine-config-server man certs check | man -l -
  # All pages, for all users
  machine-config-server man --dir /usr/local/share/man/man8";

pub(super) const VERSION: &str = "
  machine-config-server version";
